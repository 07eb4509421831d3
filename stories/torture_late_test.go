package stories_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/faultproxy"
)

// holdProduce holds the next Produce requests to B until their senders are gone,
// and returns 1 as soon as there is one.
func (r *arena) holdProduce(ctx context.Context, rng *rand.Rand) int {
	held := func() int { return counted(r.proxyB, func(c faultproxy.Counts) int { return c.Held }) }
	before := held()
	for _, p := range r.proxyB {
		p.Late(faultproxy.Late{Match: faultproxy.Requests(keyProduce), After: between(rng, 0, 5*time.Second), Told: r.toldLate})
	}
	for limit := time.Now().Add(3 * time.Second); held() == before && time.Now().Before(limit) && sleep(ctx, 10*time.Millisecond); {
	}
	return min(held()-before, 1)
}

// toldLate counts what brokers say to Produce requests that arrive when their
// sender is gone: for each batch, whether another one had gone on by then.
func (r *arena) toldLate(request, answer []byte) {
	said := lateAnswers(request, answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range said {
		r.late[what]++
	}
}

// What becomes of a late batch, where the broker does not refuse it by an error.
const (
	lateAppended   = "appended: it was the first"
	lateDuplicate  = "found there: another one had sent it"
	lateUnanswered = "not answered in time"
)

// lateAnswers are what is said to the batches of Produce requests among requests.
func lateAnswers(requests, answers []byte) (said []string) {
	versions := map[uint32]int16{}
	for head := range frames(requests) {
		if len(head) >= 8 && binary.BigEndian.Uint16(head) == keyProduce {
			versions[binary.BigEndian.Uint32(head[4:])] = int16(binary.BigEndian.Uint16(head[2:]))
		}
	}
	for body := range frames(answers) {
		if len(body) < 5 {
			continue
		}
		id := binary.BigEndian.Uint32(body)
		version, ok := versions[id]
		if !ok {
			continue
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(version)
		body = body[4:]
		if resp.IsFlexible() {
			body = body[1:] // the header's tags, of which there are none
		}
		if resp.ReadFrom(body) != nil {
			continue
		}
		delete(versions, id)
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				switch {
				case p.ErrorCode != 0:
					said = append(said, "refused: "+kerr.TypedErrorForCode(p.ErrorCode).Message)
				case p.LogAppendTime >= 0:
					said = append(said, lateDuplicate)
				default:
					said = append(said, lateAppended)
				}
			}
		}
	}
	for range versions {
		said = append(said, lateUnanswered)
	}
	return said
}

// frames are the whole messages of a Kafka connection, without their sizes.
func frames(stream []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(stream) >= 4 {
			n := int(binary.BigEndian.Uint32(stream))
			if n > len(stream)-4 || !yield(stream[4:4+n]) {
				return
			}
			stream = stream[4+n:]
		}
	}
}

func TestLateAnswersAreReadFromTheConnection(t *testing.T) {
	request := func(key kmsg.Key, version int16, id uint32) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = binary.BigEndian.AppendUint32(b, id)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}
	answer := func(version int16, id uint32, said ...kmsg.ProduceResponseTopicPartition) []byte {
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(version)
		topic := kmsg.NewProduceResponseTopic()
		topic.Partitions = said
		resp.Topics = append(resp.Topics, topic)
		b := binary.BigEndian.AppendUint32(nil, id)
		if resp.IsFlexible() {
			b = append(b, 0)
		}
		b = resp.AppendTo(b)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}
	part := func(code int16, appendTime int64) kmsg.ProduceResponseTopicPartition {
		p := kmsg.NewProduceResponseTopicPartition()
		p.ErrorCode, p.LogAppendTime = code, appendTime
		return p
	}
	requests := slices.Concat(request(kmsg.Produce, 13, 7), request(kmsg.Metadata, 12, 8), request(kmsg.Produce, 8, 9), request(kmsg.Produce, 13, 10))
	answers := slices.Concat(answer(13, 6, part(0, -1)), // of an earlier request
		answer(13, 7, part(0, -1), part(45, -1)), answer(8, 9, part(0, 1)), []byte{0, 0, 0, 9, 0})
	got := map[string]int{}
	for _, s := range lateAnswers(requests, answers) {
		got[s]++
	}
	want := map[string]int{lateAppended: 1, lateDuplicate: 1, lateUnanswered: 1, "refused: OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("said to late requests (-want +got):\n%s", diff)
	}
}
