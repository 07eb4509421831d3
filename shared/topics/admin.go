package topics

import (
	"context"
	"regexp"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A controller turns a request into records of its log and takes no more than
// 10,000 at once, a topic, a partition and a config being one each (Kafka 4.0,
// ReplicationControlManager).
const (
	mostTopics  = 1000
	mostRecords = 8000
)

// create asks for topics, or only whether they could be created. The answers are
// by name, and each topic has one, nil for success.
func (c cluster) create(ctx context.Context, topics []NewTopic, validateOnly bool) map[string]error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(c.timeout.Milliseconds())
	req.ValidateOnly = validateOnly
	for _, n := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n.Name, n.Partitions, n.ReplicationFactor
		for name, value := range n.Configs {
			e := kmsg.NewCreateTopicsRequestTopicConfig()
			e.Name, e.Value = name, new(value)
			t.Configs = append(t.Configs, e)
		}
		req.Topics = append(req.Topics, t)
	}
	answers := unanswered(topics, func(t NewTopic) string { return t.Name })
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return all(answers, cause(ctx, err))
	}
	for _, t := range resp.Topics {
		answers[t.Topic] = answer(t.ErrorCode, t.ErrorMessage)
	}
	return answers
}

// grow asks for more partitions, or only whether they could be had.
func (c cluster) grow(ctx context.Context, topics []Growth, validateOnly bool) map[string]error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.ValidateOnly = validateOnly
	req.TimeoutMillis = int32(c.timeout.Milliseconds())
	for _, g := range topics {
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = g.Topic, g.To
		req.Topics = append(req.Topics, t)
	}
	answers := unanswered(topics, func(g Growth) string { return g.Topic })
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return all(answers, cause(ctx, err))
	}
	for _, t := range resp.Topics {
		answers[t.Topic] = answer(t.ErrorCode, t.ErrorMessage)
	}
	return answers
}

// alter changes configs of topics, those of one topic all or none (KIP-339), or
// asks only whether they could be changed.
func (c cluster) alter(ctx context.Context, changes []ConfigChange, validateOnly bool) map[string]error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = validateOnly
	for _, change := range changes {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, change.Topic
		for _, op := range change.Ops {
			e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			e.Name, e.Op = op.Name, kmsg.IncrementalAlterConfigOpDelete
			if !op.Delete {
				e.Op, e.Value = kmsg.IncrementalAlterConfigOpSet, new(op.Value)
			}
			r.Configs = append(r.Configs, e)
		}
		req.Resources = append(req.Resources, r)
	}
	answers := unanswered(changes, func(c ConfigChange) string { return c.Topic })
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return all(answers, cause(ctx, err))
	}
	for _, r := range resp.Resources {
		answers[r.ResourceName] = answer(r.ErrorCode, r.ErrorMessage)
	}
	return answers
}

// lacks asks a broker whether it has a request at all; the client's own error
// for that has no name.
func (c cluster) lacks(ctx context.Context, key kmsg.Key) bool {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.client)
	if err != nil {
		return false
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == key.Int16() {
			return false
		}
	}
	return true
}

func unanswered[T any](items []T, name func(T) string) map[string]error {
	answers := make(map[string]error, len(items))
	for _, item := range items {
		answers[name(item)] = answer(kerr.UnknownServerError.Code, new("the broker did not answer for it"))
	}
	return answers
}

func all(answers map[string]error, err error) map[string]error {
	for name := range answers {
		answers[name] = err
	}
	return answers
}

// limitOfRequest reads a vendor's limit out of a refusal such as "Request cannot
// contain more than 5 topics."
var limitOfRequest = regexp.MustCompile(`more than (\d+) topics`)

// tooMany reports that a request was refused for its size and not for one of its
// topics: there are several, and all have the same answer. limit is how many may
// be in one, 0 where the answer does not say.
func tooMany(answers map[string]error) (limit int, ok bool) {
	if len(answers) < 2 {
		return 0, false
	}
	text := ""
	for _, err := range answers {
		if !is(err, kerr.InvalidRequest, kerr.PolicyViolation) || text != "" && err.Error() != text {
			return 0, false
		}
		text = err.Error()
	}
	if m := limitOfRequest.FindStringSubmatch(text); m != nil {
		limit, _ = strconv.Atoi(m[1])
	}
	return limit, true
}

// sized cuts items into requests that the target takes: at most n of them, with
// at most as many records.
func sized[T any](items []T, n int, records func(T) int) [][]T {
	var out [][]T
	first, sum := 0, 0
	for i, item := range items {
		size := records(item)
		if i > first && (i-first == n || sum+size > mostRecords) {
			out = append(out, items[first:i])
			first, sum = i, 0
		}
		sum += size
	}
	if first < len(items) {
		out = append(out, items[first:])
	}
	return out
}

// split sends items in requests that the target takes, and returns the answers
// by name. It learns a vendor's limit on the way, in *limit, and stops at the
// first answer that asks for a pause: what was not sent has that answer too.
func split[T any](items []T, limit *int, records func(T) int, name func(T) string, send func([]T) map[string]error) map[string]error {
	answers := make(map[string]error, len(items))
	queue := sized(items, max(*limit, 1), records)
	for len(queue) > 0 {
		batch := queue[0]
		queue = queue[1:]
		got := send(batch)
		if n, ok := tooMany(got); ok {
			if n > 0 && n < len(batch) {
				*limit = n
				queue = sized(slices.Concat(append([][]T{batch}, queue...)...), n, records)
			} else {
				half := len(batch) / 2
				queue = append([][]T{batch[:half], batch[half:]}, queue...)
			}
			continue
		}
		var pause error
		for item, err := range got {
			answers[item] = err
			if is(err, kerr.ThrottlingQuotaExceeded) {
				pause = err
			}
		}
		if pause == nil {
			continue
		}
		for _, b := range queue {
			for _, item := range b {
				answers[name(item)] = pause
			}
		}
		break
	}
	return answers
}

// bisect applies what can be applied of ops. try applies some of them, all or
// none; refused says whether its error is about one of the ops, so that the
// others are worth trying. Each op that is refused on its own is returned with
// the reason. Another error ends it.
func bisect(ops []ConfigOp, refused func(error) bool, try func([]ConfigOp) error) (map[ConfigOp]error, error) {
	rejected := map[ConfigOp]error{}
	queue := [][]ConfigOp{ops}
	for len(queue) > 0 {
		some := queue[0]
		queue = queue[1:]
		if len(some) == 0 {
			continue
		}
		err := try(some)
		switch {
		case err == nil:
		case !refused(err):
			return rejected, err
		case len(some) == 1:
			rejected[some[0]] = err
		default:
			queue = append([][]ConfigOp{some[:len(some)/2], some[len(some)/2:]}, queue...)
		}
	}
	return rejected, nil
}

// refusesConfig reports that a broker objects to a config and not to anything
// else.
func refusesConfig(err error) bool {
	return is(err, kerr.InvalidConfig, kerr.InvalidRequest, kerr.PolicyViolation)
}
