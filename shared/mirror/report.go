package mirror

import (
	"time"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/target"
)

// Report is what an invocation, or a sweep, has come to, in plain numbers.
type Report struct {
	// Took is from the first step to the last position stored.
	Took time.Duration
	// Partitions are those of the event, each once, in its order.
	Partitions []Copied
}

// Copied is what has become of one partition. A record counts in the invocation
// that stores the position behind it, so never twice, whatever crashes. Where that
// invocation is not told that it is stored, the record counts as repeated only.
type Copied struct {
	flow.TopicPartition        // of the source
	Remote              string // the topic on the target
	// Records are those that were copied; Found counts those of them whose copies
	// were there already, of an earlier attempt.
	Records, Found int64
	// Repeated are records that the event source brought again, and that lay
	// before the position.
	Repeated int64
	// ValueBytes counts values alone, as MirrorMaker 2 does; Bytes keys, values,
	// and names and values of headers. Neither counts what a batch adds.
	ValueBytes, Bytes int64
	// Second are records that are on the target twice: the residual of the
	// guarantees.
	Second int64
	// Holes are ranges of offsets that were reported as not copied.
	Holes int64
	// LostHeaders are records that were copied without headers whose names did not
	// travel.
	LostHeaders int64
	// DeadLetters are records that the target has refused, and that went to the
	// dead-letter topic.
	DeadLetters int64
	// Age is from a record's timestamp to the invocation's begin, Latency to the
	// target's acknowledgement. Records without timestamp are in neither.
	Age, Latency Spread
}

// Spread sums up durations. The zero Spread is of none.
type Spread struct {
	Least, Most, Sum time.Duration
	N                int64
}

// Mean is 0 of none.
func (s Spread) Mean() time.Duration {
	if s.N == 0 {
		return 0
	}
	return s.Sum / time.Duration(s.N)
}

// Add takes in what o sums up.
func (s Spread) Add(o Spread) Spread {
	switch {
	case o.N == 0:
		return s
	case s.N == 0:
		return o
	}
	return Spread{Least: min(s.Least, o.Least), Most: max(s.Most, o.Most), Sum: s.Sum + o.Sum, N: s.N + o.N}
}

// stamps sums up timestamps in milliseconds. A sum of them as they are would not
// fit, so it is of their distances from the first.
type stamps struct{ first, least, most, beyond, n int64 }

func (s *stamps) add(at int64) {
	if s.n == 0 {
		*s = stamps{first: at, least: at, most: at}
	}
	s.least, s.most = min(s.least, at), max(s.most, at)
	s.beyond += at - s.first
	s.n++
}

// until is the spread of the times from the stamps until now. Clocks differ, so
// that what lies ahead counts as now.
func (s stamps) until(now time.Time) Spread {
	if s.n == 0 {
		return Spread{}
	}
	ms := func(n int64) time.Duration { return max(0, time.Duration(n)*time.Millisecond) }
	at := now.UnixMilli()
	return Spread{Least: ms(at - s.most), Most: ms(at - s.least), Sum: ms(s.n*(at-s.first) - s.beyond), N: s.n}
}

// tally counts a lot's records while it is at work.
type tally struct {
	began                                              time.Time
	records, found, values, bytes, second, deadLetters int64
	age, latency                                       Spread
}

// count takes in what an append, or a claim, has achieved. It is called once for
// each, before the records are dropped from the lot.
func (m *Mirror) count(l *lot, got target.Appended) {
	if m.Observe == nil {
		return
	}
	t := &l.tally
	t.records += int64(got.Done)
	t.found += int64(got.Found)
	for _, s := range got.Second {
		t.second += s.Records
	}
	var stamps stamps
	for i := range l.records[:got.Done] {
		r := &l.records[i]
		t.values += int64(len(r.Value))
		t.bytes += int64(len(r.Key) + len(r.Value))
		for j := range r.Headers {
			t.bytes += int64(len(r.Headers[j].Name) + len(r.Headers[j].Value))
		}
		if r.Timestamp > kafkaevent.NoTimestamp {
			stamps.add(r.Timestamp)
		}
	}
	t.age = t.age.Add(stamps.until(t.began))
	t.latency = t.latency.Add(stamps.until(m.Now()))
}

// settle keeps what was counted, once the position is stored; uncount forgets it
// where it could not be: who stores it counts.
func (l *lot) settle() {
	s, t := &l.settled, l.tally
	s.records, s.found, s.second = s.records+t.records, s.found+t.found, s.second+t.second
	s.deadLetters += t.deadLetters
	s.values, s.bytes = s.values+t.values, s.bytes+t.bytes
	s.age, s.latency = s.age.Add(t.age), s.latency.Add(t.latency)
	l.uncount()
}

func (l *lot) uncount() { l.tally = tally{began: l.tally.began} }

// begin starts the counting of lots.
func (m *Mirror) begin(lots []*lot) {
	now := m.Now()
	for _, l := range lots {
		l.tally.began = now
	}
}

// observe reports lots that have been worked on.
func (m *Mirror) observe(lots []*lot) {
	if m.Observe == nil || len(lots) == 0 {
		return
	}
	r := Report{Took: m.Now().Sub(lots[0].tally.began)}
	for _, l := range lots {
		t := l.settled
		r.Partitions = append(r.Partitions, Copied{
			TopicPartition: l.TopicPartition, Remote: m.selector.Remote(l.Topic),
			Records: t.records, Found: t.found, Repeated: l.repeated, ValueBytes: t.values, Bytes: t.bytes,
			Second: t.second, DeadLetters: t.deadLetters, Holes: l.reported, LostHeaders: l.lostHeaders, Age: t.age, Latency: t.latency,
		})
	}
	m.Observe(r)
}
