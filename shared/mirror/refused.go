package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/target"
)

// refused says of an append that the target refuses what it refuses, by which of
// its limits, and what to set. Other errors it leaves as they are.
func (m *Mirror) refused(l *lot, err error) error {
	r, ok := errors.AsType[*target.RejectedError](err)
	if !ok {
		return err
	}
	why := m.whyRefused(l, r)
	if why == "" {
		return fmt.Errorf("append to %s on %s: %w", l.remote.TopicPartition, m.Settings.Target, err)
	}
	return fmt.Errorf("append to %s on %s: %w: %s", l.remote.TopicPartition, m.Settings.Target, err, why)
}

func (m *Mirror) whyRefused(l *lot, r *target.RejectedError) string {
	topic, cluster := l.remote.Topic, m.Settings.Target
	limit := func(name string) string { return cmp.Or(r.Limits[name], "unknown, as "+cluster+" does not tell it") }
	switch r.Code {
	case kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code:
		size := fmt.Sprintf("%d bytes", r.Size)
		if r.Plain != r.Size {
			size = fmt.Sprintf("%d bytes, %d before %s", r.Size, r.Plain, m.Settings.Compression)
		}
		return fmt.Sprintf("the record makes a batch of %s; max.message.bytes of %s is %s, and max.request.size of the producer, which bounds what several records share, is %d: set max.message.bytes of %s on %s to %d or more",
			size, topic, limit("max.message.bytes"), m.Settings.MaxRequestSize, topic, cluster, r.Size)
	case kerr.InvalidTimestamp.Code:
		return m.whyTimestamp(l, r, limit)
	case kerr.InvalidRecord.Code:
		if strings.Contains(r.Limits["cleanup.policy"], "compact") && r.Record >= 0 && l.plain[0].Key == nil {
			return fmt.Sprintf("the record has no key, and %s is compacted: set cleanup.policy of %s on %s to delete, or keep such records out of the topic", topic, topic, cluster)
		}
	case kerr.UnsupportedCompressionType.Code, kerr.UnsupportedForMessageFormat.Code:
		return fmt.Sprintf("the cluster takes no batch compressed with %s, or none of this format: set %s.producer.compression.type = none", m.Settings.Compression, cluster)
	case kerr.TopicAuthorizationFailed.Code:
		return fmt.Sprintf("grant WRITE on topic %s of cluster %s to the user of its producer", topic, cluster)
	case kerr.ClusterAuthorizationFailed.Code:
		return fmt.Sprintf("grant IDEMPOTENT_WRITE on cluster %s to the user of its producer", cluster)
	}
	return ""
}

// whyTimestamp tells the limit that a timestamp is beyond.
func (m *Mirror) whyTimestamp(l *lot, r *target.RejectedError, limit func(string) string) string {
	if r.Record < 0 {
		return ""
	}
	topic, cluster := l.remote.Topic, m.Settings.Target
	stamp := time.UnixMilli(l.plain[0].Timestamp).UTC()
	side, name := "older", "message.timestamp.before.max.ms"
	away := m.Now().UnixMilli() - stamp.UnixMilli()
	if away < 0 {
		side, name, away = "newer", "message.timestamp.after.max.ms", -away
	}
	return fmt.Sprintf("the record's timestamp, %d (%s), is %d ms %s than now; message.timestamp.before.max.ms of %s is %s and message.timestamp.after.max.ms %s: set %s of %s on %s to more",
		stamp.UnixMilli(), stamp.Format(time.RFC3339), away, side,
		topic, limit("message.timestamp.before.max.ms"), limit("message.timestamp.after.max.ms"), name, topic, cluster)
}
