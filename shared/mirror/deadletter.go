package mirror

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/producer"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// tolerate writes the first of the lot's records, which the target has refused, to
// the dead-letter topic and moves the position past it, if errors.tolerance is all.
// It reports whether it did, or that it could not.
//
// The position is stored before anything behind the record is appended: the next
// invocation must not look for it among the copies. A crash before that makes a
// second dead letter of the record, never none.
func (m *Mirror) tolerate(ctx context.Context, l *lot, err error) (bool, error) {
	refusal, ok := errors.AsType[*target.RejectedError](err)
	if !ok || !refusal.OfRecord() || !m.Settings.TolerateErrors || m.DeadLetters == nil {
		return false, nil
	}
	err = m.refused(l, err)
	// Another invocation may have been here, and done the same.
	stored, storeErr := m.Store.Positions(ctx, []flow.TopicPartition{l.TopicPartition})
	if storeErr != nil {
		return false, errors.Join(err, fmt.Errorf("read the position before a dead letter: %w", storeErr))
	}
	if stored[l.TopicPartition].Version != l.pos.Version {
		l.retry(fmt.Errorf("write a dead letter: %w", state.ErrConflict))
		return true, nil
	}
	topic := m.Settings.DeadLettersTopic
	offset := l.records[0].Offset
	letter := producer.Record{Partition: flow.TopicPartition{Topic: topic}, Record: l.plain[0]}
	if letter.Timestamp == target.NoTimestamp {
		letter.Timestamp = m.Now().UnixMilli()
	}
	if m.Settings.DeadLettersContext {
		letter.Headers = append(letter.Headers[:len(letter.Headers):len(letter.Headers)], m.contextHeaders(l, refusal, err)...)
	}
	if sendErr := producer.Send(ctx, m.DeadLetters, []producer.Record{letter}); sendErr != nil {
		return false, errors.Join(err, fmt.Errorf("write it to the dead-letter topic: %w", sendErr))
	}
	m.addHole(l, DeadLetter, span{offset, offset + 1}, 1)
	m.Logger.WarnContext(ctx, "record is refused and went to the dead-letter topic",
		"topic", l.Topic, "partition", l.Partition, "offset", offset, "deadletters", topic, "error", err.Error())
	l.pos.Upstream, l.changed, l.tries = offset+1, true, 0
	l.records, l.plain = l.records[1:], l.plain[1:]
	l.tally.deadLetters++
	l.advance()
	return true, nil
}

// contextHeaders are Connect's (DeadLetterQueueReporter of Apache Kafka), all of
// them text. A consumer of dead letters finds the record by topic, partition and
// offset of the source.
func (m *Mirror) contextHeaders(l *lot, refusal *target.RejectedError, err error) []batch.Header {
	const prefix = "__connect.errors."
	exception := javaException(refusal.Code)
	var headers []batch.Header
	for _, h := range [][2]string{
		{"topic", l.Topic},
		{"partition", strconv.Itoa(int(l.Partition))},
		{"offset", strconv.FormatInt(l.records[0].Offset, 10)},
		{"connector.name", m.Settings.Connector},
		{"task.id", "0"},
		{"stage", "KAFKA_PRODUCE"},
		{"class.name", "mirrorless/shared/mirror"},
		{"exception.class.name", exception},
		{"exception.message", err.Error()},
		{"exception.stacktrace", exception + ": " + err.Error()},
	} {
		headers = append(headers, batch.Header{Name: prefix + h[0], Value: []byte(h[1])})
	}
	return headers
}

// javaException is the class that Kafka's Errors gives a code.
func javaException(code int16) string {
	name := "KafkaException"
	switch code {
	case kerr.MessageTooLarge.Code:
		name = "RecordTooLargeException"
	case kerr.RecordListTooLarge.Code:
		name = "RecordBatchTooLargeException"
	case kerr.InvalidTimestamp.Code:
		name = "InvalidTimestampException"
	case kerr.InvalidRecord.Code:
		return "org.apache.kafka.common.InvalidRecordException"
	case kerr.PolicyViolation.Code:
		name = "PolicyViolationException"
	}
	return "org.apache.kafka.common.errors." + name
}
