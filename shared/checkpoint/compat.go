package checkpoint

import "mirrorless/shared/offsets"

// sampled is what MirrorMaker 2 would know of a partition: the offset syncs that
// its source task emits, in the store with which its checkpoint task translates.
// It is made from the run map, so it is the view of a MirrorMaker 2 that has run
// all the time.
type sampled struct {
	store offsets.Store64

	begun    bool
	previous offsets.Sync // the last record
	synced   int64        // downstream offset of the last sync that the rule demanded
	next     int64        // upstream offset of the first record that is not in yet
}

// mostSyncs bounds the syncs taken from one run; a longer one is sampled at a
// multiple of offset.lag.max.
const mostSyncs = 1 << 20

// sample takes in what was copied since the last time.
func (p *partition) sample(lagMax int64) {
	if p.sampled == nil {
		p.sampled = &sampled{}
		p.sampled.store.ReadToEnd()
	}
	s := p.sampled
	if s.next >= p.pos.Upstream {
		return
	}
	for run := range p.runs.Runs() {
		if skip := s.next - run.Upstream; skip > 0 && skip < run.Length {
			run.Upstream, run.Downstream, run.Length = run.Upstream+skip, run.Downstream+skip, run.Length-skip
		} else if skip >= run.Length {
			continue
		}
		run.Length = min(run.Length, p.pos.Upstream-run.Upstream)
		if run.Length <= 0 {
			break
		}
		s.add(run, max(lagMax, 0)+1)
	}
	s.next = p.pos.Upstream
	// At every commit MirrorMaker 2 emits the newest pair as well.
	if s.begun && s.previous.Downstream != s.synced {
		s.store.Add(s.previous)
	}
}

// add takes in a run by the rule of MirrorSourceTask.PartitionState, of which
// [offsets.SyncRule] is the form for single records: within a run a sync is due
// every step records.
func (s *sampled) add(run offsets.Run, step int64) {
	first := offsets.Sync{Upstream: run.Upstream, Downstream: run.Downstream}
	due := run.Downstream
	if s.begun && first.Upstream == s.previous.Upstream+1 && first.Downstream >= s.previous.Downstream {
		due = max(s.synced+step, due)
	}
	step *= 1 + run.Length/step/mostSyncs
	for ; due < run.Downstream+run.Length; due += step {
		s.store.Add(offsets.Sync{Upstream: run.Upstream + due - run.Downstream, Downstream: due})
		s.synced = due
	}
	s.begun = true
	s.previous = offsets.Sync{Upstream: run.Upstream + run.Length - 1, Downstream: run.Downstream + run.Length - 1}
}
