package embedded

import (
	"bytes"
	"testing"

	"mirrorless/shared/flow"
)

// FuzzCheckpointKey takes any key apart; one that comes apart is put together again
// the same.
func FuzzCheckpointKey(f *testing.F) {
	f.Add(checkpointKey("group", flow.TopicPartition{Topic: "A.orders", Partition: 3}))
	f.Add(checkpointKey("\x00", flow.TopicPartition{Topic: "t", Partition: 1 << 30}))
	f.Add([]byte("no zero"))
	f.Add([]byte("short\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, key []byte) {
		group, tp, err := splitCheckpointKey(key)
		if err != nil {
			return
		}
		if got := checkpointKey(group, tp); !bytes.Equal(got, key) {
			t.Errorf("got %q, want %q", got, key)
		}
	})
}
