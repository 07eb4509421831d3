package mirror_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// loseTail makes B look as after an unclean leader election: the state tells of
// fifteen acknowledged records of orders-0, and B has ten, and says so.
func (w *world) loseTail() {
	w.t.Helper()
	w.must(w.cold(), numbered(0, 10))
	pos := w.position()
	pos.Upstream, pos.Downstream, pos.Copied, pos.Sequence = 15, 15, 15, 15
	pos.Runs = offsets.AppendChunk(nil, []offsets.Run{{Length: 15}})
	if _, err := w.broken.Store.Advance(w.t.Context(), map[flow.TopicPartition]state.Position{orders0: pos}); err != nil {
		w.t.Fatal(err)
	}
	w.fakeB.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.fakeB.KeepControl()
		resp := kmsg.NewPtrDescribeProducersResponse()
		resp.Version = req.GetVersion()
		for _, t := range req.(*kmsg.DescribeProducersRequest).Topics {
			rt := kmsg.NewDescribeProducersResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				rp.Partition = p
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.LastSequence = pos.ProducerID, int32(pos.Epoch), 9
				rp.ActiveProducers = append(rp.ActiveProducers, a)
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

func TestATargetThatLostAcknowledgedRecordsStopsThePartition(t *testing.T) {
	w := newWorld(t)
	w.loseTail()
	_, err := handle(w.cold(), numbered(15, 20))
	lost, ok := errors.AsType[*target.LostError](err)
	if !ok || lost.Records != 5 {
		t.Errorf("got %v, want five lost records", err)
	}
	w.wantKeys(0, 10)
}

func TestLostRecordsAreCopiedAgainFromTheSourceWhereToldTo(t *testing.T) {
	w := newWorld(t)
	w.settings.Recreated = config.RecreatedCopy
	var records []*kgo.Record
	for _, r := range numbered(0, 20) {
		records = append(records, &kgo.Record{Topic: "orders", Partition: 0, Key: r.Key, Value: r.Value})
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(w.fakeA.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w.loseTail()
	w.must(w.cold(), numbered(15, 20))
	w.wantKeys(0, 20)
	if got := w.position(); got.Upstream != 20 || got.Downstream != 20 {
		t.Errorf("position: got %s, want 20 → 20", fmt.Sprint(got.Upstream, got.Downstream))
	}
}
