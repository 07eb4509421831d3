package kafkaevent_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/kafkaevent"
)

// The JSON is AWS's, of its page on Kafka's retry configurations.
func TestFailuresReply(t *testing.T) {
	failures := []kafkaevent.Failure{{Topic: "or-ders", Partition: 3, Offset: 100}, {Topic: "or-ders", Partition: 3, Offset: 101}}
	reply := kafkaevent.EncodeFailures(failures)
	const want = `{"batchItemFailures":[{"itemIdentifier":{"partition":"or-ders-3","offset":100}},{"itemIdentifier":{"partition":"or-ders-3","offset":101}}]}`
	if diff := cmp.Diff(want, string(reply)); diff != "" {
		t.Errorf("reply differs (-want +got):\n%s", diff)
	}
	got, err := kafkaevent.DecodeFailures(reply)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(failures, got); diff != "" {
		t.Errorf("failures differ (-want +got):\n%s", diff)
	}
	if got, want := string(kafkaevent.EncodeFailures(nil)), `{"batchItemFailures":[]}`; got != want {
		t.Errorf("got %s for no failures, want %s", got, want)
	}
}

func TestRepliesThatAreSuccess(t *testing.T) {
	for _, reply := range []string{"", " \n", "null", "{}", `{"batchItemFailures":null}`, `{"batchItemFailures":[]}`, `{"statusCode":200}`} {
		if got, err := kafkaevent.DecodeFailures([]byte(reply)); err != nil || got != nil {
			t.Errorf("%q: got %v, %v, want success", reply, got, err)
		}
	}
}

func TestRepliesThatAreNotUnderstood(t *testing.T) {
	for _, reply := range []string{
		"ok", `"ok"`, "7", `{"batchItemFailures":[{}]}`, `{"batchItemFailures":[{"itemIdentifier":""}]}`,
		`{"batchItemFailures":[{"itemIdentifier":{"partition":"orders","offset":1}}]}`,
		`{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-x","offset":1}}]}`,
		`{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-3"}}]}`,
		`{"batchItemFailures":[{"itemIdentifier":"orders-3-100"}]}`,
	} {
		if got, err := kafkaevent.DecodeFailures([]byte(reply)); err == nil {
			t.Errorf("%q: got %v, want an error, so that the whole batch is sent again", reply, got)
		}
	}
}

func FuzzDecodeFailures(f *testing.F) {
	f.Add([]byte(`{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-3","offset":100}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := kafkaevent.DecodeFailures(b)
		if err != nil {
			return
		}
		again, err := kafkaevent.DecodeFailures(kafkaevent.EncodeFailures(got))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("round trip differs (-want +got):\n%s", diff)
		}
	})
}
