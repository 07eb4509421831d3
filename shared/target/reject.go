package target

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LimitConfigs are the configs of a topic that a [RejectedError] tells.
func LimitConfigs() []string {
	return []string{
		"cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type",
		"message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
	}
}

// limitsFor bounds the question for them: the refusal is known already.
const limitsFor = 3 * time.Second

// rejected is the error of a broker's refusal. The batch had size bytes as it was
// sent, and began with a record of the call.
func (l *Log) rejected(ctx context.Context, p Partition, ans answer, record, size, plain int) *RejectedError {
	r := &RejectedError{Record: record, Code: ans.code, Detail: ans.detail, Size: size, Plain: plain}
	if !ofRecord(ans.code) {
		r.Record = -1
	}
	if w, ok := l.brokers.(*wire); ok && ofRecord(ans.code) {
		r.Limits = w.configs(ctx, p.Topic)
	}
	return r
}

// configs reads the limits of a topic. They are told to a person, who is helped
// without them as well: an error is no error.
func (w *wire) configs(ctx context.Context, topic string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, limitsFor)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	resource.ConfigNames = LimitConfigs()
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, w.client)
	if err != nil {
		return nil
	}
	var limits map[string]string
	for _, answered := range resp.Resources {
		if kerr.ErrorForCode(answered.ErrorCode) != nil {
			continue
		}
		limits = make(map[string]string, len(answered.Configs))
		for _, c := range answered.Configs {
			if c.Value != nil && !c.IsSensitive {
				limits[c.Name] = *c.Value
			}
		}
	}
	return limits
}
