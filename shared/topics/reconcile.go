package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"mirrorless/shared/state"
)

// Action is what is done to an event source.
type Action string

// The actions on event sources, in the order of a mapping's life. A mapping that
// nobody wants is disabled in one round and deleted in a later one, so that a
// topic that was hidden for a moment comes back at once.
const (
	ActionCreate  Action = "create"
	ActionUpdate  Action = "update"
	ActionDisable Action = "disable"
	ActionDelete  Action = "delete"
)

// EventSourceChange is a difference between the mappings and what the flow wants.
type EventSourceChange struct {
	Action Action
	// ID is the mapping's, empty for one to be created.
	ID string
	// From is how the mapping is, To how it should be; To is empty for one to be
	// deleted.
	From, To EventSourceSpec
	// Outdated says that an update is for what specs do not tell, too.
	Outdated bool

	// row is what is stored of the mapping.
	row state.EventSource
	// partitions of the topic, which the row tells from then on.
	partitions int32
}

// bookkeeping is what a plan knows and nobody needs to see.
type bookkeeping struct {
	// blocked are topics of the source that a problem keeps from being copied.
	blocked map[string]bool
	// put are rows that say something else than the mappings, gone those without
	// mapping and topic.
	put  []rowChange
	gone []state.EventSource
	// notEnabled are topics whose mapping should be Enabled and is not. What is done to
	// mappings is reckoned in.
	notEnabled map[string]bool
}

type rowChange struct{ from, to state.EventSource }

// diffSources compares the mappings with the selected topics. A mapping that is
// on its way to another state waits for the next round.
func (r rules) diffSources(o observation, p *Plan) {
	byTopic := map[string][]EventSource{}
	for _, s := range o.sources {
		if r.ours(s) {
			byTopic[s.Topic] = append(byTopic[s.Topic], s)
		}
	}
	wanted := map[string]bool{}
	p.bookkeeping.notEnabled = map[string]bool{}
	for _, t := range o.topics {
		wanted[t.name] = true
		row := o.rows[t.name]
		kept, extra := keep(byTopic[t.name], row.ID)
		for _, s := range extra {
			if s.settled() {
				p.EventSources = append(p.EventSources, EventSourceChange{Action: ActionDelete, ID: s.ID, From: s.EventSourceSpec})
			}
		}
		spec := r.spec(t.name)
		change := EventSourceChange{ID: kept.ID, From: kept.EventSourceSpec, To: spec, row: row, partitions: t.partitions()}
		if spec.Enabled && kept.State != StateEnabled && (kept.ID != "" || !p.bookkeeping.blocked[t.name]) {
			p.bookkeeping.notEnabled[t.name] = true
		}
		switch {
		case len(spec.Group) > mostGroup:
			p.Problems = append(p.Problems, fmt.Errorf("create the event source of %s: its group %s is longer than %d characters: shorten the stack's name", t.name, spec.Group, mostGroup))
		case kept.ID == "" && p.bookkeeping.blocked[t.name]:
		case kept.ID == "":
			change.Action = ActionCreate
			p.EventSources = append(p.EventSources, change)
		case kept.settled() && (!same(kept.EventSourceSpec, spec) || kept.Outdated && !r.updated[kept.ID]):
			change.Action, change.Outdated = ActionUpdate, kept.Outdated
			p.EventSources = append(p.EventSources, change)
		default:
			if next := rowOf(row, kept, t.partitions()); next != row {
				p.bookkeeping.put = append(p.bookkeeping.put, rowChange{row, next})
			}
		}
	}
	r.diffUnwanted(o, byTopic, wanted, p)
}

// diffUnwanted finds the mappings and rows of topics that are not copied any more.
func (r rules) diffUnwanted(o observation, byTopic map[string][]EventSource, wanted map[string]bool, p *Plan) {
	for topic, sources := range byTopic {
		if wanted[topic] {
			continue
		}
		for _, s := range sources {
			change := EventSourceChange{ID: s.ID, From: s.EventSourceSpec, row: o.rows[topic]}
			switch s.State {
			case StateEnabled:
				change.Action, change.To = ActionDisable, s.EventSourceSpec
				change.To.Enabled = false
				change.partitions = change.row.Partitions
			case StateDisabled:
				change.Action = ActionDelete
			default:
				continue
			}
			p.EventSources = append(p.EventSources, change)
		}
	}
	for topic, row := range o.rows {
		if !wanted[topic] && len(byTopic[topic]) == 0 {
			p.bookkeeping.gone = append(p.bookkeeping.gone, row)
		}
	}
	slices.SortFunc(p.EventSources, func(a, b EventSourceChange) int {
		return cmp.Or(cmp.Compare(a.topic(), b.topic()), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(p.bookkeeping.gone, func(a, b state.EventSource) int { return cmp.Compare(a.Topic, b.Topic) })
}

func (c EventSourceChange) topic() string { return cmp.Or(c.To.Topic, c.From.Topic) }

// keep chooses one of a topic's mappings: two can come of a create whose answer
// was lost. They share the group, so the other one can go.
func keep(sources []EventSource, stored string) (kept EventSource, extra []EventSource) {
	if len(sources) == 0 {
		return EventSource{}, nil
	}
	best := slices.MinFunc(sources, func(a, b EventSource) int {
		if (a.ID == stored) != (b.ID == stored) {
			if a.ID == stored {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return best, slices.DeleteFunc(slices.Clone(sources), func(s EventSource) bool { return s.ID == best.ID })
}

// same compares what can be changed of a mapping.
func same(a, b EventSourceSpec) bool {
	return a.BatchSize == b.BatchSize && a.Window == b.Window && a.PartialFailures == b.PartialFailures && a.Enabled == b.Enabled
}

// rowOf is the row of a mapping as it is now. PartialFailures is what mirror
// trusts when it answers: a partial answer counts as success where the mapping
// does not read it. So a mapping that is being changed is believed only to have
// lost it.
func rowOf(row state.EventSource, s EventSource, partitions int32) state.EventSource {
	partial := s.PartialFailures && (s.settled() || row.PartialFailures && row.ID == s.ID)
	row.Topic, row.ID, row.Group, row.State = s.Topic, s.ID, s.Group, s.State
	row.PartialFailures = partial
	row.BatchSize, row.Window = s.BatchSize, s.Window
	row.Partitions = partitions
	if !fine(row.LastResult) || !fine(s.LastResult) {
		row.LastResult = s.LastResult
	}
	return row
}

// fine reports a result that a healthy mapping goes to and from all day, which is
// no news.
func fine(result string) bool {
	return result == "" || result == "OK" || result == "No records processed"
}

// reconcile makes the mappings what they should be, and then the rows. Topics
// whose partitions are not all ready keep what they have. starts has the start of
// mappings that are created.
func (t *Topics) reconcile(ctx context.Context, p Plan, ready map[string]bool, starts map[string]Start) []error {
	var errs []error
	for i, c := range p.EventSources {
		if t.outOfTime(ctx) {
			t.Logger.InfoContext(ctx, "out of time, the other event sources follow at the next round", "left", len(p.EventSources)-i)
			break
		}
		c.To.Start = starts[c.topic()]
		if err := t.change(ctx, c, ready[c.topic()], p.bookkeeping.notEnabled); err != nil {
			errs = append(errs, fmt.Errorf("%s the event source of %s: %w", c.Action, c.topic(), err))
		}
	}
	for _, row := range p.bookkeeping.put {
		if !ready[row.to.Topic] {
			// What is not ready must not count as such: Partitions says so.
			row.to.Partitions = row.from.Partitions
		}
		if row.to != row.from && (ready[row.to.Topic] || row.from.Version > 0) {
			_, err := t.putRow(ctx, row.to)
			errs = append(errs, wrap("keep the event source of "+row.to.Topic, unlessConflict(err)))
		}
	}
	for _, row := range p.bookkeeping.gone {
		errs = append(errs, wrap("forget the event source of "+row.Topic, unlessConflict(t.Store.DeleteEventSource(ctx, row))))
	}
	return errs
}

// change makes one mapping what it should be, and says in notEnabled if it is.
func (t *Topics) change(ctx context.Context, c EventSourceChange, ready bool, notEnabled map[string]bool) error {
	row := c.row
	if row.PartialFailures && !(c.From.PartialFailures && c.To.PartialFailures) {
		// mirror must know before the mapping that partial answers are not read.
		row.PartialFailures = false
		var err error
		if row, err = t.putRow(ctx, row); err != nil {
			return unlessConflict(err)
		}
	}
	if !ready && c.To.Enabled {
		return nil
	}
	var now EventSource
	var err error
	switch c.Action {
	case ActionCreate:
		now, err = t.EventSources.Create(ctx, c.To)
	case ActionDelete:
		err = t.EventSources.Delete(ctx, c.ID)
	default:
		now, err = t.EventSources.Update(ctx, c.ID, c.To)
	}
	if err != nil {
		return err
	}
	if c.Outdated {
		t.memory.updated[c.ID] = true
	}
	t.Logger.InfoContext(ctx, "changed event source", "action", string(c.Action), "topic", c.topic())
	if c.Action == ActionDelete {
		return nil // the row goes when the mapping has
	}
	if c.To.Enabled {
		notEnabled[c.topic()] = now.State != StateEnabled
	}
	_, err = t.putRow(ctx, rowOf(row, now, c.partitions))
	return unlessConflict(err)
}

// putRow stores what is known of a mapping.
func (t *Topics) putRow(ctx context.Context, row state.EventSource) (state.EventSource, error) {
	row.Updated = t.Now()
	stored, err := t.Store.PutEventSource(ctx, row)
	if err != nil {
		return row, fmt.Errorf("store its row: %w", err)
	}
	return stored, nil
}

// unlessConflict leaves what another round has changed to the next one.
func unlessConflict(err error) error {
	if errors.Is(err, state.ErrConflict) {
		return nil
	}
	return err
}
