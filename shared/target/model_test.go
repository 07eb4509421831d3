package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

// model is one partition with the rules of Kafka's ProducerStateManager, as
// they were observed on Kafka 4.3.1, behind a network that loses requests and
// answers and delivers requests late.
type model struct {
	rng    *rand.Rand
	log    []entry
	state  map[int64]*producerState
	late   [][]byte
	faults int // in a thousand calls
	stamp  bool
	cancel context.CancelFunc // kills the invocation under way
	other  func()             // another invocation of the same partition, start to end
}

type entry struct {
	batch.Record
	producer batch.Producer
	base     int64 // of its batch
}

type producerState struct {
	epoch  int16
	recent []span // the last five batches
}

type span struct {
	first, last int32
	base        int64
}

func (m *model) append(raw []byte) answer {
	b := parse(slices.Clone(raw)) // the log keeps it
	p, n := b.Producer(), b.Count()
	st := m.state[p.ID]
	last := batch.Advance(p.Sequence, n-1)
	if st != nil {
		for _, s := range st.recent {
			if st.epoch == p.Epoch && s.first == p.Sequence && s.last == last {
				return answer{base: s.base, appendTime: 1, bad: -1}
			}
		}
		switch {
		case p.Epoch < st.epoch:
			return answer{code: kerr.InvalidProducerEpoch.Code, bad: -1}
		case p.Epoch > st.epoch && p.Sequence != 0:
			return answer{code: kerr.OutOfOrderSequenceNumber.Code, bad: -1}
		case p.Epoch == st.epoch && batch.Advance(st.recent[len(st.recent)-1].last, 1) != p.Sequence:
			return answer{code: kerr.OutOfOrderSequenceNumber.Code, bad: -1}
		}
	}
	if st == nil || st.epoch != p.Epoch {
		st = &producerState{epoch: p.Epoch}
		m.state[p.ID] = st
	}
	base := int64(len(m.log))
	records, err := b.Records(nil)
	if err != nil {
		panic(err)
	}
	for i, r := range records {
		m.log = append(m.log, entry{r.Record, batch.Producer{ID: p.ID, Epoch: p.Epoch, Sequence: batch.Advance(p.Sequence, i)}, base})
	}
	st.recent = append(st.recent, span{p.Sequence, last, base})
	st.recent = st.recent[max(0, len(st.recent)-5):]
	at := int64(NoTimestamp)
	if m.stamp {
		at = 1
	}
	return answer{base: base, appendTime: at, bad: -1}
}

func parse(raw []byte) batch.Batch {
	for b, err := range batch.All(raw) {
		if err != nil {
			panic(err)
		}
		return b
	}
	panic("no batch")
}

// trouble lets a late request arrive, somebody else write, or the invocation be
// killed.
func (m *model) trouble() {
	if m.rng.IntN(1000) >= m.faults {
		return
	}
	switch m.rng.IntN(5) {
	case 0, 1:
		if len(m.late) > 0 {
			i := m.rng.IntN(len(m.late))
			m.append(m.late[i])
			if m.rng.IntN(2) == 0 {
				m.late = slices.Delete(m.late, i, i+1)
			}
		}
	case 2:
		m.log = append(m.log, entry{batch.Record{Value: []byte("foreign")}, batch.Producer{ID: -1}, int64(len(m.log))})
	case 3:
		m.cancel()
	case 4:
		if other := m.other; other != nil {
			m.other = nil
			other()
			m.other = other
		}
	}
}

func (m *model) produce(ctx context.Context, _ Partition, raw []byte) (answer, error) {
	m.trouble()
	lost := errors.New("connection reset")
	if m.rng.IntN(1000) < m.faults {
		switch m.rng.IntN(3) {
		case 0:
			return answer{}, lost
		case 1:
			m.late = append(m.late, slices.Clone(raw))
			return answer{}, lost
		case 2:
			m.append(raw)
			return answer{}, lost
		}
	}
	return m.append(raw), context.Cause(ctx)
}

func (m *model) producers(ctx context.Context, ps []Partition) (map[Partition]told, error) {
	m.trouble()
	var ks []known
	for id, st := range m.state {
		ks = append(ks, known{id: id, epoch: st.epoch, sequence: st.recent[len(st.recent)-1].last})
	}
	return map[Partition]told{ps[0]: {producers: ks}}, context.Cause(ctx)
}

func (m *model) fetch(ctx context.Context, _ Partition, offset int64) (fetched, error) {
	m.trouble()
	out := fetched{end: int64(len(m.log))}
	for at := offset; at < out.end && at < offset+7; {
		base := m.log[at].base
		var records []batch.Record
		for at = base; at < out.end && m.log[at].base == base; at++ {
			records = append(records, m.log[at].Record)
		}
		raw := batch.Append(nil, m.log[base].producer, records, nil)
		for j := range 8 {
			raw[j] = byte(base >> (56 - 8*j))
		}
		out.raw = append(out.raw, raw...)
	}
	return out, context.Cause(ctx)
}

// copier is the least that a caller must do around a Log: read the position,
// append, write the position under its version.
type copier struct {
	log      *Log
	upstream int
	cursor   Cursor
	version  int
	// second is the ledger of second copies, by offset. It is written before the
	// position is, also by those who cannot write that.
	second map[int64]int64
}

func (c *copier) invoke(ctx context.Context, source []batch.Record, until int, store bool) error {
	next := *c
	save := func() bool {
		if c.version != next.version {
			return false
		}
		next.version++
		*c = next
		return true
	}
	defer func() {
		if store {
			save()
		}
	}()
	p := Partition{TopicPartition: flow.TopicPartition{Topic: "t"}}
	standing, err := c.log.Standing(ctx, []Probe{{p, next.cursor}})
	if err != nil {
		return err
	}
	records := source[next.upstream:max(until, next.upstream)]
	book := func(a Appended) {
		next.upstream += a.Done
		next.cursor = a.Cursor
		for _, s := range a.Second {
			c.second[s.Offset] = s.Records
		}
		records = records[a.Done:]
	}
	switch s := standing[p.TopicPartition]; s.Verdict {
	case Ahead:
		a, err := c.log.Claim(ctx, p, next.cursor, records, int(s.Records))
		book(a)
		if err != nil {
			return err
		}
	case Forgotten:
		a, err := c.log.Claim(ctx, p, next.cursor, records, -1)
		book(a)
		if err != nil {
			return err
		}
		if next.cursor.Producer.Sequence != 0 && len(records) > 0 {
			next.cursor.Producer.Epoch++
			next.cursor.Producer.Sequence = 0
			if !save() { // a new epoch is stored before it is used
				store = false
				return errors.New("another invocation moved the position")
			}
		}
	case Behind, Fenced:
		return fmt.Errorf("verdict %s", s.Verdict)
	}
	a, err := c.log.Append(ctx, p, next.cursor, records, nil)
	book(a)
	return err
}

// play copies n records through a network with faults, and returns what of ours
// is on the target then. forgetful brokers forget the producer also while
// requests are outstanding, which is the known residual.
func play(t *testing.T, seed uint64, n int, forgetful bool) (c *copier, source []batch.Record, got []string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &model{rng: rng, state: map[int64]*producerState{}, faults: 30 + rng.IntN(300), stamp: rng.IntN(4) == 0 && !forgetful}
	source = make([]batch.Record, n)
	for i := range source {
		source[i] = batch.Record{Timestamp: int64(i + 1), Value: fmt.Appendf(nil, "record %d", i)}
	}
	c = &copier{second: map[int64]int64{}, log: newLog(m, Options{BatchBytes: batch.Overhead + 40 + rng.IntN(800)})}
	c.cursor.Producer = batch.Producer{ID: 9}
	for invocations := 0; c.upstream < n; invocations++ {
		if invocations > 20*n {
			t.Fatalf("seed %d: stuck at %d", seed, c.upstream)
		}
		if rng.IntN(40) == 0 && (forgetful || len(m.late) == 0) {
			clear(m.state)
		}
		if c.upstream >= n-10 {
			m.faults, m.late = 0, nil // so that the last record shows what came before it
		}
		invoke := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			outer := m.cancel
			m.cancel = cancel
			// A retry may come with another boundary than the attempt before.
			until := min(n, c.upstream+1+rng.IntN(60))
			if c.upstream < n-10 {
				until = min(until, n-10)
			}
			_ = c.invoke(ctx, source, until, rng.IntN(4) != 0)
			m.cancel = outer
		}
		m.other = invoke
		invoke()
	}
	for _, e := range m.log {
		if e.producer.ID == 9 {
			got = append(got, string(e.Value))
		}
	}
	return c, source, got
}

func TestEachRecordIsAppendedOnceAndInOrderWhateverTheNetworkDoes(t *testing.T) {
	const n = 400
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			_, source, got := play(t, seed, n, false)
			for i := range max(len(got), n) {
				if i >= len(got) || i >= n || got[i] != string(source[i].Value) {
					t.Fatalf("seed %d: got %d records on the target, want %d; first difference at %d", seed, len(got), n, i)
				}
			}
		})
	}
}

// TestALateRequestToABrokerThatForgotIsCounted lets the residual happen: the
// first copies are complete and in order, and every second copy is counted.
func TestALateRequestToABrokerThatForgotIsCounted(t *testing.T) {
	const n = 400
	doubled := 0
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			c, source, got := play(t, seed, n, true)
			seen := map[string]bool{}
			next := 0
			for _, value := range got {
				if seen[value] {
					continue
				}
				seen[value] = true
				if value != string(source[next].Value) {
					t.Fatalf("seed %d: got %q as first copy number %d", seed, value, next)
				}
				next++
			}
			counted := int64(0)
			for _, records := range c.second {
				counted += records
			}
			if next != n || int64(len(got)-n) != counted {
				t.Fatalf("seed %d: got %d of %d records, %d of them twice, %d counted", seed, next, n, len(got)-n, counted)
			}
			doubled += len(got) - n
		})
	}
	if doubled == 0 {
		t.Error("the residual did not happen")
	}
}
