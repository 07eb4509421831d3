package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// observe reads what a round needs to know, in a few requests for all topics. An
// error means that the round cannot go on; what is missing of a part only is in
// the observation's errs.
func (t *Topics) observe(ctx context.Context) (observation, error) {
	o := observation{now: t.Now()}
	var sourceErr, stateErr, rowsErr, listErr error
	var wg sync.WaitGroup
	wg.Go(func() { o.source, sourceErr = t.source.metadata(ctx, true) })
	wg.Go(func() {
		if o.flow, stateErr = t.Store.Flow(ctx); errors.Is(stateErr, state.ErrNotFound) {
			o.flow, stateErr = state.FlowRow{}, nil
		}
	})
	if t.EventSources != nil {
		wg.Go(func() { o.rows, rowsErr = t.rows(ctx) })
		wg.Go(func() { o.sources, listErr = t.EventSources.List(ctx) })
	}
	wg.Wait()
	if err := errors.Join(sourceErr, wrap("read the flow", stateErr), wrap("read the event sources' rows", rowsErr)); err != nil {
		return o, err
	}
	o.keepsSources = t.EventSources != nil && listErr == nil
	if listErr != nil {
		o.errs = append(o.errs, fmt.Errorf("list event sources: %w", listErr))
	}
	t.choose(&o)
	names := t.rules.internalNames(false)
	for _, tp := range o.topics {
		names = append(names, tp.remote)
	}
	slices.Sort(names)
	var err error
	if o.target, err = t.target.metadata(ctx, false, slices.Compact(names)...); err != nil {
		return o, err
	}
	if err := t.rules.checkFlow(o.flow, o.source, o.target); err != nil {
		return o, err
	}
	t.setPrepared(&o)
	if err := t.observePositions(ctx, &o); err != nil {
		return o, err
	}
	t.observeConfigs(ctx, &o)
	t.observeRivals(ctx, &o)
	if t.Settings.SyncTopicACLs.Enabled && due(t.memory.acls, o.now, t.Settings.SyncTopicACLs.Interval) {
		t.observeACLs(ctx, &o)
	}
	return o, nil
}

// errUnread stands for an error that has been told for all topics.
var errUnread = errors.New("they could not be read")

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

func (t *Topics) rows(ctx context.Context) (map[string]state.EventSource, error) {
	rows, err := t.Store.EventSources(ctx)
	byTopic := make(map[string]state.EventSource, len(rows))
	for _, row := range rows {
		byTopic[row.Topic] = row
	}
	return byTopic, err
}

// choose selects the topics of the source that are copied. Without refresh, those
// of the first complete round stay as they were then.
func (t *Topics) choose(o *observation) {
	own := t.rules.internalNames(true)
	frozen := !t.Settings.RefreshTopics.Enabled && t.memory.settled
	for _, name := range slices.Sorted(maps.Keys(o.source.topics)) {
		verdict := t.rules.selector.Select(name)
		if !verdict.Copy {
			if verdict.Reason.ByPolicy() && !slices.Contains(own, name) {
				o.skipped = append(o.skipped, Skipped{Topic: name, Reason: verdict.Reason})
			}
			continue
		}
		tp := topic{name: name, remote: t.rules.selector.Remote(name), topicView: o.source.topics[name]}
		if frozen {
			known := t.memory.prepared[name]
			if known == 0 {
				continue
			}
			tp.leaders = tp.leaders[:min(known, tp.partitions())]
		}
		o.topics = append(o.topics, tp)
	}
}

// setPrepared fills in how many partitions of each topic are known to have a
// position: the event source of a topic comes after them. A copy that is gone
// makes its positions worth a look.
func (t *Topics) setPrepared(o *observation) {
	for i := range o.topics {
		tp := &o.topics[i]
		if _, there := o.target.topics[tp.remote]; there {
			tp.prepared = min(max(t.memory.prepared[tp.name], o.rows[tp.name].Partitions), tp.partitions())
		}
	}
}

func (t *Topics) observePositions(ctx context.Context, o *observation) error {
	var need []flow.TopicPartition
	for _, tp := range o.topics {
		for n := tp.prepared; n < tp.partitions(); n++ {
			need = append(need, flow.TopicPartition{Topic: tp.name, Partition: n})
		}
	}
	if len(need) == 0 {
		return nil
	}
	var err error
	o.positions, err = t.Store.Positions(ctx, need)
	return wrap("read positions", err)
}

// observeConfigs describes the topics whose configs matter in this round: those
// that have no copy, and all where config sync is due. The first round of a
// process looks at all topics of the source: some records are too large for it.
func (t *Topics) observeConfigs(ctx context.Context, o *observation) {
	sync := t.Settings.SyncTopicConfigs
	o.syncConfigs = sync.Enabled && !t.memory.noAlter && due(t.memory.configs, o.now, sync.Interval)
	var sources, copies []string
	for _, tp := range o.topics {
		there, ok := o.target.topics[tp.remote]
		switch {
		case tp.err != nil, there.err != nil:
		case !ok:
			sources = append(sources, tp.name)
		case o.syncConfigs:
			sources = append(sources, tp.name)
			copies = append(copies, tp.remote)
		case !t.memory.looked:
			sources = append(sources, tp.name)
		}
	}
	var err error
	if o.configs, err = t.source.configs(ctx, sources); err != nil {
		// Without them nothing may be created.
		o.errs = append(o.errs, err)
		o.syncConfigs = false
		o.configs = map[string]described{}
		for _, name := range sources {
			o.configs[name] = described{err: errUnread}
		}
	}
	if o.remoteConfigs, err = t.target.configs(ctx, copies); err != nil {
		o.errs = append(o.errs, err)
		o.syncConfigs = false
	}
	if t.memory.looked {
		return
	}
	o.internalConfigs = map[string]map[string]described{}
	for _, c := range []struct {
		cluster
		view
		onSource bool
	}{{t.source, o.source, true}, {t.target, o.target, false}} {
		names := slices.DeleteFunc(t.rules.internalNames(c.onSource), func(name string) bool {
			_, ok := c.topics[name]
			return !ok
		})
		// Only a warning can come of it.
		o.internalConfigs[c.alias], _ = c.configs(ctx, names)
	}
}
