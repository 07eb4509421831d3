package batch_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"mirrorless/shared/batch"
)

func TestABatchOfATransactionSaysSo(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		p := batch.Producer{ID: 8, Epoch: 2, Sequence: 5, Transactional: transactional}
		for b, err := range batch.All(batch.Append(nil, p, odd, nil)) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Transactional() != transactional || b.Control() || b.Producer() != p {
				t.Errorf("got %+v, transactional %t; want %+v", b.Producer(), b.Transactional(), p)
			}
			if _, ok := b.Marker(); ok {
				t.Error("a batch of records is taken for a marker")
			}
		}
	}
}

func TestAMarkerSaysHowTheTransactionEnded(t *testing.T) {
	for name, x := range map[string]struct {
		key           []byte
		committed, ok bool
	}{
		"commit":                     {[]byte{0, 0, 0, 1}, true, true},
		"abort":                      {[]byte{0, 0, 0, 0}, false, true},
		"a leader's change (KRaft)":  {[]byte{0, 0, 0, 2}, false, false},
		"a key that is cut off":      {[]byte{0, 0}, false, false},
		"a marker of a version more": {[]byte{0, 1, 0, 1, 9}, true, true},
	} {
		raw := batch.Append(nil, batch.Producer{ID: 8, Sequence: -1, Transactional: true}, []batch.Record{{Key: x.key}}, nil)
		raw[22] |= 0x20
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		for b, err := range batch.All(raw) {
			if err != nil {
				t.Fatal(err)
			}
			if committed, ok := b.Marker(); committed != x.committed || ok != x.ok {
				t.Errorf("%s: got %t, %t; want %t, %t", name, committed, ok, x.committed, x.ok)
			}
		}
	}
}
