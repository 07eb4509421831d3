package target

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
)

// txModel is a partition of copies and one of position records, with the rules of
// Kafka's TransactionCoordinator and ProducerStateManager for one transactional
// id, as they were observed on Kafka 4.3.1, behind a network that loses requests
// and answers and delivers requests late.
type txModel struct {
	rng    *rand.Rand
	faults int // in a thousand calls
	// implicit: transaction.version 2, see protocol.
	implicit bool

	logs map[flow.TopicPartition]*txLog

	pid        int64
	epoch      int16
	ongoing    bool
	parts      map[flow.TopicPartition]bool // of the ongoing transaction
	markers    *txMarkers                   // being written
	lastCommit bool
	lastEpoch  int16 // of the transaction that was ended last

	late   []func()
	cancel context.CancelFunc // kills the invocation under way
	other  func()             // another invocation of the same partition, start to end
}

type txLog struct {
	entries []txEntry
	epochs  map[int64]*txProducer
}

type txEntry struct {
	batch.Record
	producer batch.Producer
	control  bool
	commit   bool
}

type txProducer struct {
	producerState
	open bool // a transaction of this epoch has records here
}

type txMarkers struct {
	epoch  int16
	commit bool
	parts  map[flow.TopicPartition]bool
}

var (
	txCopies    = Partition{TopicPartition: flow.TopicPartition{Topic: "A.t"}, Source: flow.TopicPartition{Topic: "t"}}
	txPositions = Partition{TopicPartition: flow.TopicPartition{Topic: "positions"}}
)

// complete writes the markers of a transaction that is decided.
func (m *txModel) complete() {
	if m.markers == nil {
		return
	}
	for _, tp := range slices.SortedFunc(maps.Keys(m.markers.parts), flow.TopicPartition.Compare) {
		l := m.logs[tp]
		p := batch.Producer{ID: m.pid, Epoch: m.markers.epoch, Sequence: -1, Transactional: true}
		l.entries = append(l.entries, txEntry{producer: p, control: true, commit: m.markers.commit})
		st := l.epochs[m.pid]
		if st == nil || st.epoch != p.Epoch {
			st = &txProducer{producerState: producerState{epoch: p.Epoch}}
			l.epochs[m.pid] = st
		}
		st.open = false
	}
	m.markers = nil
}

func (m *txModel) decide(commit bool, epoch int16) {
	m.markers = &txMarkers{epoch: epoch, commit: commit, parts: maps.Clone(m.parts)}
	m.ongoing, m.lastCommit = false, commit
	clear(m.parts)
	if m.rng.IntN(2) == 0 {
		m.complete()
	}
}

// expire is the coordinator's end of a transaction that took too long.
func (m *txModel) expire() {
	if m.ongoing {
		m.epoch++
		m.decide(false, m.epoch)
	}
}

func (m *txModel) init() (batch.Producer, int16) {
	if m.markers != nil {
		if m.rng.IntN(2) == 0 {
			m.complete()
		}
		return batch.Producer{}, kerr.ConcurrentTransactions.Code
	}
	m.epoch++
	if m.ongoing {
		m.decide(false, m.epoch)
		return batch.Producer{}, kerr.ConcurrentTransactions.Code
	}
	m.lastEpoch = -1
	return batch.Producer{ID: m.pid, Epoch: m.epoch}, 0
}

func (m *txModel) add(tp flow.TopicPartition, epoch int16) int16 {
	switch {
	case epoch != m.epoch:
		return kerr.ProducerFenced.Code
	case m.markers != nil:
		if m.rng.IntN(2) == 0 {
			m.complete()
		}
		return kerr.ConcurrentTransactions.Code
	}
	m.ongoing = true
	m.parts[tp] = true
	return 0
}

func (m *txModel) append(tp flow.TopicPartition, raw []byte) answer {
	b := parse(slices.Clone(raw))
	p, n := b.Producer(), b.Count()
	l := m.logs[tp]
	st := l.epochs[p.ID]
	if !p.Transactional {
		panic("a batch outside any transaction")
	}
	refuse := func(e *kerr.Error) answer { return answer{code: e.Code, bad: -1} }
	last := batch.Advance(p.Sequence, n-1)
	if st == nil || st.epoch != p.Epoch || !st.open {
		// The leader asks the coordinator before the first batch of a transaction.
		if m.implicit {
			if code := m.add(tp, p.Epoch); code != 0 {
				return answer{code: code, bad: -1}
			}
		} else if p.Epoch != m.epoch || !m.parts[tp] {
			return refuse(kerr.TransactionAbortable)
		}
	}
	if st != nil {
		for _, s := range st.recent {
			if st.epoch == p.Epoch && s.first == p.Sequence && s.last == last {
				return answer{base: s.base, appendTime: 1, bad: -1}
			}
		}
		expected := int32(0)
		if st.epoch == p.Epoch && len(st.recent) > 0 {
			expected = batch.Advance(st.recent[len(st.recent)-1].last, 1)
		}
		switch {
		case p.Epoch < st.epoch:
			return refuse(kerr.InvalidProducerEpoch)
		case p.Sequence != expected:
			return refuse(kerr.OutOfOrderSequenceNumber)
		}
	}
	if st == nil || st.epoch != p.Epoch {
		st = &txProducer{producerState: producerState{epoch: p.Epoch}}
		l.epochs[p.ID] = st
	}
	base := int64(len(l.entries))
	records, err := b.Records(nil)
	if err != nil {
		panic(err)
	}
	for _, r := range records {
		l.entries = append(l.entries, txEntry{Record: r.Record, producer: p})
	}
	st.open = true
	st.recent = append(st.recent, span{p.Sequence, last, base})
	st.recent = st.recent[max(0, len(st.recent)-5):]
	return answer{base: base, appendTime: NoTimestamp, bad: -1}
}

func (m *txModel) endTxn(epoch int16, commit bool) (int16, int16) {
	switch {
	case m.implicit && epoch == m.lastEpoch && !m.ongoing && m.lastCommit == commit && m.epoch == epoch+1:
		if m.markers != nil {
			return 0, kerr.ConcurrentTransactions.Code
		}
		return m.epoch, 0 // said again
	case epoch != m.epoch:
		return 0, kerr.ProducerFenced.Code
	case m.markers != nil:
		return 0, kerr.ConcurrentTransactions.Code
	case !m.ongoing && !m.implicit && m.lastEpoch == epoch && m.lastCommit == commit:
		return epoch, 0 // said again
	case !m.ongoing && !(m.implicit && !commit):
		return 0, kerr.InvalidTxnState.Code
	}
	m.lastEpoch = epoch
	if m.implicit {
		m.epoch++
	}
	m.decide(commit, m.epoch)
	return m.epoch, 0
}

// trouble lets a late request arrive, somebody else write, a transaction expire,
// or the invocation be killed.
func (m *txModel) trouble() {
	if m.rng.IntN(1000) >= m.faults {
		return
	}
	switch m.rng.IntN(6) {
	case 0, 1:
		if len(m.late) > 0 {
			i := m.rng.IntN(len(m.late))
			m.late[i]()
			if m.rng.IntN(2) == 0 {
				m.late = slices.Delete(m.late, i, i+1)
			}
		}
	case 2:
		l := m.logs[txCopies.TopicPartition]
		p := batch.Producer{ID: -1}
		if m.rng.IntN(2) == 0 {
			p = batch.Producer{ID: 77, Transactional: true} // and never ends it
		}
		l.entries = append(l.entries, txEntry{Record: batch.Record{Value: []byte("foreign")}, producer: p})
	case 3:
		m.cancel()
	case 4:
		m.expire()
	case 5:
		if other := m.other; other != nil {
			m.other = nil
			other()
			m.other = other
		}
	}
}

var errLost = errors.New("connection reset")

// over sends a request over the network: it may be lost, late or unanswered.
func (m *txModel) over(ctx context.Context, request func()) error {
	m.trouble()
	if m.rng.IntN(1000) < m.faults {
		switch m.rng.IntN(3) {
		case 0:
			return errLost
		case 1:
			m.late = append(m.late, request)
			return errLost
		case 2:
			request()
			return errLost
		}
	}
	request()
	return context.Cause(ctx)
}

func (m *txModel) begin(ctx context.Context, _ string, _ time.Duration) (batch.Producer, error) {
	for wait := newBackoff(); ; {
		var p batch.Producer
		var code int16
		err := m.over(ctx, func() { p, code = m.init() })
		if err == nil && code == 0 {
			return p, nil
		}
		if !wait.next(ctx) {
			return p, context.Cause(ctx)
		}
	}
}

func (m *txModel) renew(ctx context.Context, _ string, p batch.Producer, _ time.Duration) (batch.Producer, error) {
	if m.implicit {
		return p, nil
	}
	code := int16(0)
	expected := p.Epoch
	err := m.over(ctx, func() {
		if expected != m.epoch {
			code = kerr.ProducerFenced.Code
			return
		}
		p, code = m.init()
	})
	if err == nil {
		err = kerr.ErrorForCode(code)
	}
	return p, err
}

func (m *txModel) write(ctx context.Context, _ string, producer batch.Producer, parts []part) []outcome {
	out := make([]outcome, len(parts))
	if !m.implicit {
		code := int16(0)
		err := m.over(ctx, func() {
			for _, p := range parts {
				code = max(code, m.add(p.TopicPartition, producer.Epoch))
			}
		})
		if err != nil || code != 0 {
			for i := range out {
				out[i] = outcome{err: err, ans: answer{code: code, bad: -1}}
			}
			return out
		}
	}
	for i, p := range parts {
		raw := slices.Clone(p.raw)
		out[i].err = m.over(ctx, func() { out[i].ans = m.append(p.TopicPartition, raw) })
	}
	return out
}

func (m *txModel) end(ctx context.Context, _ string, p batch.Producer, commit bool) (batch.Producer, error) {
	var code, epoch int16
	err := m.over(ctx, func() { epoch, code = m.endTxn(p.Epoch, commit) })
	if err == nil {
		err = kerr.ErrorForCode(code)
	}
	if err != nil {
		if code == kerr.ConcurrentTransactions.Code {
			m.complete()
		}
		return p, err
	}
	p.Epoch = epoch
	return p, nil
}

func (m *txModel) offsets(ctx context.Context, ps []Partition, which edge) (map[Partition]int64, error) {
	m.trouble()
	out := map[Partition]int64{}
	for _, p := range ps {
		if which == logEnd {
			out[p] = int64(len(m.logs[p.TopicPartition].entries))
		} else {
			out[p] = 0
		}
	}
	return out, context.Cause(ctx)
}

func (m *txModel) topics(context.Context, []string) (map[string]Topic, error) {
	return map[string]Topic{txPositions.Topic: {Partitions: 1}}, nil
}

func (m *txModel) fetch(ctx context.Context, p Partition, offset int64) (fetched, error) {
	m.trouble()
	l := m.logs[p.TopicPartition]
	out := fetched{end: int64(len(l.entries))}
	for i := offset; i < out.end && i < offset+7; i++ {
		e := l.entries[i]
		if e.control {
			e.Record = batch.Record{Key: []byte{0, 0, 0, 0}}
			if e.commit {
				e.Key[3] = 1
			}
		}
		raw := batch.Append(nil, e.producer, []batch.Record{e.Record}, nil)
		binary.BigEndian.PutUint64(raw, uint64(i))
		if e.control {
			raw[22] |= 0x20
			binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
		out.raw = append(out.raw, raw...)
	}
	return out, context.Cause(ctx)
}

func (m *txModel) produce(context.Context, Partition, []byte) (answer, error) {
	panic("an append outside any transaction")
}

func (m *txModel) producers(context.Context, []Partition) (map[Partition]told, error) {
	panic("transactions do not ask for producers")
}

// committed is what a reader of committed records sees, with the offsets.
func (m *txModel) committed(p Partition) (out []txEntry, at []int64) {
	entries := m.logs[p.TopicPartition].entries
	for i, e := range entries {
		if e.control || e.producer.ID != m.pid {
			continue
		}
		for _, after := range entries[i:] {
			if after.control && after.producer.ID == e.producer.ID {
				if after.commit {
					out, at = append(out, e), append(at, int64(i))
				}
				break
			}
		}
	}
	return out, at
}

// txCopier is the least that a caller must do around Transactions.
type txCopier struct {
	upstream int
	cursor   Cursor
	version  int
	runs     map[int]int64 // where each record is, as the caller was told
}

// environment is a process: it remembers where its last invocation ended.
type environment struct {
	*Transactions
	memory *txCopier
}

func (c *txCopier) invoke(ctx context.Context, e *environment, source []batch.Record, until int, store bool) error {
	s := Standing{Verdict: Agrees}
	next := e.memory
	e.memory = nil
	if next == nil {
		next = new(*c)
		next.runs = maps.Clone(c.runs)
		standing, err := e.Standing(ctx, []Probe{{txCopies, next.cursor}})
		if err != nil {
			return err
		}
		s = standing[txCopies.TopicPartition]
	}
	err := next.goOn(ctx, e.Transactions, s, source, until)
	if store && c.version == next.version {
		next.version++
		*c = *next
		c.runs = maps.Clone(next.runs)
		if err == nil {
			e.memory = next
		}
	}
	return err
}

func (next *txCopier) goOn(ctx context.Context, t *Transactions, s Standing, source []batch.Record, until int) error {
	records := source[next.upstream:max(until, next.upstream)]
	book := func(a Appended) {
		for _, p := range a.Placed {
			for i := range p.Count {
				next.runs[next.upstream+p.First+i] = p.Base + int64(i)
			}
		}
		next.upstream += a.Done
		next.cursor = a.Cursor
		records = records[a.Done:]
	}
	switch {
	case s.Err != nil:
		return s.Err
	case s.Verdict == Ahead:
		a, err := t.Claim(ctx, txCopies, next.cursor, records, int(s.Records))
		book(a)
		if err != nil {
			return err
		}
	case s.Verdict != Agrees:
		return fmt.Errorf("verdict %s", s.Verdict)
	}
	for range 3 {
		n := len(records)/3 + 1
		first := next.upstream
		a, err := t.Append(ctx, txCopies, next.cursor, records[:min(n, len(records))], func(i int) int64 { return int64(first + i) })
		book(a)
		if err != nil {
			return err
		}
	}
	return nil
}

func TestEachRecordIsCommittedOnceAndInOrderWhateverTheNetworkDoes(t *testing.T) {
	const n = 200
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			m := &txModel{
				rng: rng, faults: 30 + rng.IntN(300), implicit: rng.IntN(2) == 0, pid: 9, lastEpoch: -1,
				logs: map[flow.TopicPartition]*txLog{
					txCopies.TopicPartition:    {epochs: map[int64]*txProducer{}},
					txPositions.TopicPartition: {epochs: map[int64]*txProducer{}},
				},
				parts: map[flow.TopicPartition]bool{},
			}
			source := make([]batch.Record, n)
			for i := range source {
				source[i] = batch.Record{Timestamp: int64(i + 1), Value: fmt.Appendf(nil, "record %d", i)}
			}
			o := TransactionOptions{Connector: mm2.SourceConnector, Cluster: "A", Positions: txPositions.Topic, Flow: flow.Flow{Source: "A", Target: "B"}}
			o.BatchBytes = batch.Overhead + 40 + rng.IntN(800)
			fresh := func() *environment { return &environment{Transactions: newTransactions(newLog(m, o.Options), m, o)} }
			environments := []*environment{fresh(), fresh()}
			c := &txCopier{runs: map[int]int64{}}
			invocations := 0
			for c.upstream < n {
				if invocations++; invocations > 50*n {
					t.Fatalf("seed %d: stuck at %d", seed, c.upstream)
				}
				invoke := func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					outer := m.cancel
					m.cancel = cancel
					e := rng.IntN(2)
					if rng.IntN(10) == 0 {
						environments[e] = fresh()
					}
					// A retry may come with another boundary than the attempt before.
					_ = c.invoke(ctx, environments[e], source, min(n, c.upstream+1+rng.IntN(60)), rng.IntN(4) != 0)
					m.cancel = outer
				}
				m.other = invoke
				invoke()
			}
			m.expire()
			m.complete()
			got, at := m.committed(txCopies)
			for i := range max(len(got), n) {
				if i >= len(got) || i >= n || string(got[i].Value) != string(source[i].Value) {
					t.Fatalf("seed %d: got %d committed records, want %d; first difference at %d", seed, len(got), n, i)
				}
				if c.runs[i] != at[i] {
					t.Fatalf("seed %d: record %d is at %d, the run map says %d", seed, i, at[i], c.runs[i])
				}
			}
			positions, _ := m.committed(txPositions)
			last := int64(-1)
			for i, r := range positions {
				p, err := mm2.ParseSourcePosition(r.Key, r.Value)
				if err != nil || p.Topic != "t" || p.Offset <= last {
					t.Fatalf("seed %d: position record %d: got %+v after %d, %v", seed, i, p, last, err)
				}
				last = p.Offset
			}
			if last != n-1 {
				t.Fatalf("seed %d: the last position is %d, want %d", seed, last, n-1)
			}
		})
	}
}
