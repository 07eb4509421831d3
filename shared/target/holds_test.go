package target

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

// elected is a leader that knows only after some reads what its followers have.
type elected struct {
	brokers
	log     []batch.Record
	unknown int
	reads   int
}

func (e *elected) fetch(context.Context, Partition, int64) (fetched, error) {
	if e.reads++; e.reads <= e.unknown {
		return fetched{}, nil
	}
	return fetched{raw: batch.Append(nil, batch.Producer{ID: 1}, e.log, nil), end: int64(len(e.log))}, nil
}

// TestALeaderThatWasJustElectedIsNotTakenForAnEmptyOne is of the copy that tells a
// repeated record from that of a new topic: what cannot be read yet is not another
// record.
func TestALeaderThatWasJustElectedIsNotTakenForAnEmptyOne(t *testing.T) {
	p := Partition{TopicPartition: flow.TopicPartition{Topic: "A.orders"}}
	records := values(0, 3)
	synctest.Test(t, func(t *testing.T) {
		log := newLog(&elected{log: records, unknown: 5}, Options{})
		for offset, want := range map[int64]batch.Record{1: records[1], 2: records[2]} {
			if same, err := log.Holds(t.Context(), p, offset, want); !same || err != nil {
				t.Errorf("offset %d: got %v, %v; want the record found", offset, same, err)
			}
		}
		if same, err := log.Holds(t.Context(), p, 1, records[2]); same || err != nil {
			t.Errorf("another record: got %v, %v; want it told apart", same, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		log := newLog(&elected{log: records, unknown: 1 << 30}, Options{})
		if same, err := log.Holds(ctx, p, 1, records[1]); same || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v; want an error rather than a guess", same, err)
		}
	})
}
