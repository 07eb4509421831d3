package mirror

import (
	"context"
	"errors"
	"fmt"

	"mirrorless/shared/kafkaevent"
)

// answer is the reply to the event source. One that names failures counts as
// success where the event source is not told to read it, so it is given only
// where topics has confirmed that it is, and the records would be lost
// otherwise.
func (m *Mirror) answer(ctx context.Context, lots []*lot) ([]byte, error) {
	var errs []error
	var failures []kafkaevent.Failure
	partial := true
	for _, l := range lots {
		if l.err == nil {
			continue
		}
		first := l.all[0].Offset
		if len(l.records) > 0 {
			first = l.records[0].Offset
		} else if l.done < len(l.all) {
			first = l.all[l.done].Offset
		}
		errs = append(errs, fmt.Errorf("copy %s at offset %d: %w", l.TopicPartition, first, l.err))
		for _, r := range l.all {
			if r.Offset >= first {
				failures = append(failures, kafkaevent.Failure{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset})
			}
		}
		source, err := m.Store.EventSource(ctx, l.Topic)
		partial = partial && err == nil && source.PartialFailures
	}
	switch {
	case len(errs) == 0:
		return kafkaevent.EncodeFailures(nil), nil
	case !partial:
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		m.Logger.ErrorContext(ctx, "partition is not copied", "error", err.Error())
	}
	return kafkaevent.EncodeFailures(failures), nil
}
