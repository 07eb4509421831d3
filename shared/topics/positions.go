package topics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// settling is how long after the first deployment a topic without any position
// may be one that was there at the time. It matters under auto.offset.reset =
// latest only, after a crash of the first round: the topics it did not get to
// still begin at the time of the deployment. A topic that was made since begins
// there as well, which is its log start unless its records bear older times.
const settling = time.Hour

// beginning is what decides where a partition begins.
type beginning struct {
	// start is the log start offset on the source.
	start int64
	// late: the partition begins at the offset of the first deployment, at, and not
	// at its log start.
	late bool
	at   int64
	// end is the end offset of the partition on the target.
	end      int64
	producer int64
	// takenOver: start and end are those of a copy that somebody else has made.
	takenOver bool
	source    state.TopicID
	target    state.TopicID
	// stored is a position under which nothing was copied before the copy was
	// created again.
	stored state.Position
}

// position is the first one of a partition.
//
// What the target's partition holds already, and takeOver could not tell to be a
// copy, is followed by the new records.
func (b beginning) position() state.Position {
	if b.stored.Version > 0 {
		b.stored.Downstream, b.stored.TargetTopicID = b.end, b.target
		return b.stored
	}
	first := b.start
	if b.late {
		first = max(b.start, b.at)
	}
	return state.Position{
		First: first, Upstream: first, Downstream: b.end,
		ProducerID:    b.producer,
		SourceTopicID: b.source, TargetTopicID: b.target,
	}
}

// isLate says whether a topic begins at the time of the first deployment. Only a
// topic that was found then does: what comes later is copied from its start, for
// latest would lose the first records of a new topic or partition (KAFKA-4668).
func (t *Topics) isLate(o observation, tp topic) bool {
	if t.Settings.AutoOffsetReset != "latest" || t.memory.settled || tp.prepared > 0 || o.now.Sub(o.flow.Created) > settling {
		return false
	}
	for n := range tp.partitions() {
		if _, ok := o.positions[flow.TopicPartition{Topic: tp.name, Partition: n}]; ok {
			return false
		}
	}
	return true
}

// begin writes the position of each partition that has none, where its copy can
// be used. It returns the topics whose partitions all have one, and where the
// event source of each topic starts.
func (t *Topics) begin(ctx context.Context, o observation, p Plan, copies view, failed map[string]bool) (ready map[string]bool, starts map[string]Start, errs []error) {
	missing := map[string][]flow.TopicPartition{}
	for _, tp := range p.Begin {
		missing[tp.Topic] = append(missing[tp.Topic], tp)
	}
	ready, starts = map[string]bool{}, map[string]Start{}
	var todo []topic
	for _, tp := range o.topics {
		if p.bookkeeping.blocked[tp.name] || failed[tp.name] {
			continue
		}
		if len(missing[tp.name]) == 0 {
			ready[tp.name] = true
		} else {
			todo = append(todo, tp)
		}
	}
	asked, failures := t.ask(ctx, o, todo, missing, copies)
	if err := t.takeOver(ctx, o, asked, copies); err != nil {
		// What may be a copy must not be followed by another one.
		for tp, b := range asked {
			if b.end > 0 && !b.takenOver {
				failures[tp] = err
				delete(asked, tp)
			}
		}
	}
	next := map[flow.TopicPartition]state.Position{}
	for tp, b := range asked {
		next[tp] = b.position()
	}
	if len(next) > 0 {
		t.write(ctx, next, failures)
	}
	t.tellOccupied(ctx, asked)
	for _, tp := range todo {
		ready[tp.name] = true
		for _, partition := range missing[tp.name] {
			if failures[partition] != nil {
				delete(ready, tp.name)
			}
		}
	}
	t.addStarts(ctx, o, asked, starts)
	byName := map[string]error{}
	for tp, err := range failures {
		byName[tp.String()] = err
	}
	return ready, starts, together("begin", byName)
}

// ask reads the offsets that decide.
func (t *Topics) ask(ctx context.Context, o observation, todo []topic, missing map[string][]flow.TopicPartition, copies view) (map[flow.TopicPartition]beginning, map[flow.TopicPartition]error) {
	start, ends, since := map[flow.TopicPartition]int64{}, map[flow.TopicPartition]int64{}, map[flow.TopicPartition]int64{}
	remote := map[flow.TopicPartition]int64{}
	of := map[flow.TopicPartition]topic{}
	for _, tp := range todo {
		late := t.isLate(o, tp)
		for _, partition := range missing[tp.name] {
			of[partition] = tp
			start[partition] = logStart
			remote[flow.TopicPartition{Topic: tp.remote, Partition: partition.Partition}] = logEnd
			if late {
				ends[partition], since[partition] = logEnd, o.flow.Created.UnixMilli()
			}
		}
	}
	if len(of) == 0 {
		return nil, map[flow.TopicPartition]error{}
	}
	// The end is read before the time's offset: where no record is as young, the
	// next one comes at or after that end.
	starts, failed := t.source.offsetsOf(ctx, o.source.topics, start)
	end, endFailed := t.source.offsetsOf(ctx, o.source.topics, ends)
	at, atFailed := t.source.offsetsOf(ctx, o.source.topics, since)
	there, thereFailed := t.target.offsetsOf(ctx, copies.topics, remote)

	asked := map[flow.TopicPartition]beginning{}
	for partition, tp := range of {
		copied := flow.TopicPartition{Topic: tp.remote, Partition: partition.Partition}
		switch err := errors.Join(failed[partition], endFailed[partition], atFailed[partition]); {
		case err != nil:
			failed[partition] = fmt.Errorf("read the offsets of cluster %s: %w", t.source.alias, hint(err, "DESCRIBE", tp.name, t.source.alias))
			continue
		case thereFailed[copied] != nil:
			failed[partition] = fmt.Errorf("read the end of %s on cluster %s: %w", copied, t.target.alias, hint(thereFailed[copied], "DESCRIBE", tp.remote, t.target.alias))
			continue
		}
		b := beginning{
			start: starts[partition], end: there[copied],
			producer: o.flow.ProducerID, source: tp.id, target: copies.topics[tp.remote].id,
			stored: o.positions[partition],
		}
		if _, b.late = since[partition]; b.late {
			if b.at = at[partition]; b.at < 0 {
				b.at = end[partition]
			}
		}
		asked[partition] = b
	}
	return asked, failed
}

// write stores first positions. One that another round has written is as good.
func (t *Topics) write(ctx context.Context, next map[flow.TopicPartition]state.Position, failures map[flow.TopicPartition]error) {
	stored, err := t.Store.Advance(ctx, next)
	if err == nil {
		return
	}
	conflict, _ := errors.AsType[*state.ConflictError](err)
	for tp := range next {
		if _, ok := stored[tp]; ok {
			continue
		}
		if conflict != nil && conflict.Current[tp].Version > next[tp].Version {
			continue
		}
		failures[tp] = fmt.Errorf("store the first position: %w", err)
	}
}

// tellOccupied warns of copies that hold records which this flow has not written.
func (t *Topics) tellOccupied(ctx context.Context, asked map[flow.TopicPartition]beginning) {
	records, taken := map[string]int64{}, map[string]int64{}
	for tp, b := range asked {
		switch {
		case b.takenOver:
			taken[tp.Topic] += b.end
		case b.end > 0 && b.stored.Version == 0:
			records[tp.Topic] += b.end
		}
	}
	for topic, n := range taken {
		t.warn(ctx, Warning{
			Message: "copy is taken over: what it holds already is compared with the source and not copied again",
			Topic:   t.rules.selector.Remote(topic), Detail: []any{"offsets", n},
		})
	}
	for topic, n := range records {
		t.warn(ctx, Warning{
			Message: "copy holds records that the state knows nothing of: the source is copied behind them, from its start, also where they are copies of the same records",
			Topic:   t.rules.selector.Remote(topic), Detail: []any{"offsets", n},
		})
	}
}

// addStarts lets the event sources of topics that begin late start at the time of
// the first deployment. The log start would do as well, since mirror drops what
// lies before the position, but reads all of it.
func (t *Topics) addStarts(ctx context.Context, o observation, asked map[flow.TopicPartition]beginning, starts map[string]Start) {
	if t.Settings.AutoOffsetReset != "latest" || !o.keepsSources {
		return
	}
	at := Start{At: o.flow.Created}
	for tp, b := range asked {
		if b.late {
			starts[tp.Topic] = at
		}
	}
	// A round that crashed may have left positions without an event source.
	ask := map[flow.TopicPartition]int64{}
	for tp := range o.positions {
		if _, ok := o.rows[tp.Topic]; !ok && starts[tp.Topic] == (Start{}) {
			ask[tp] = logStart
		}
	}
	got, _ := t.source.offsetsOf(ctx, o.source.topics, ask)
	for tp, start := range got {
		if o.positions[tp].First > start {
			starts[tp.Topic] = at
		}
	}
}
