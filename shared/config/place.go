package config

import (
	"strings"

	"mirrorless/shared/flow"
)

// document is a file after scanning: the value of each key that counts, and
// where the keys stand.
type document struct {
	aliases  []string
	entries  []entry // the last of each key, in the order they first appear
	top      map[string]entry
	flows    map[flow.Flow]map[string]entry
	clusters map[string]map[string]entry
	placed   map[string]placement // by full key
}

// placement is where a key stands: the prefix it has and the name that is left.
type placement struct {
	place Place // 0 for a flow key between clusters that the file does not declare
	flow  flow.Flow
	alias string
	name  string
}

// place finds out which part of key is an alias or a flow. Aliases may contain
// dots, arrows and blanks, so only what the file declares counts; of two that
// fit, the longer one.
func (d *document) place(key string, known map[string]Key) placement {
	best := placement{place: TopLevel, name: key}
	if strings.Contains(key, "->") {
		best.place = 0
	}
	// An alias may be "source", and source.cluster.alias is no client setting.
	if k, ok := known[key]; ok && k.Places&TopLevel != 0 {
		return best
	}
	for _, alias := range d.aliases {
		if name, ok := strings.CutPrefix(key, alias+"."); ok && len(name) < len(best.name) {
			best = placement{place: OnCluster, alias: alias, name: name}
		}
	}
	for _, f := range d.pairs() {
		if name, ok := strings.CutPrefix(key, f.String()+"."); ok && len(name) < len(best.name) {
			best = placement{place: OnFlow, flow: f, name: name}
		}
	}
	return best
}

// pairs returns every ordered pair of two declared clusters.
func (d *document) pairs() []flow.Flow {
	var pairs []flow.Flow
	for _, s := range d.aliases {
		for _, t := range d.aliases {
			if s != t {
				pairs = append(pairs, flow.Flow{Source: s, Target: t})
			}
		}
	}
	return pairs
}

// sortKeys puts every entry where it stands.
func (d *document) sortKeys(known map[string]Key) {
	d.top = map[string]entry{}
	d.flows = map[flow.Flow]map[string]entry{}
	d.clusters = map[string]map[string]entry{}
	d.placed = map[string]placement{}
	for _, e := range d.entries {
		p := d.place(e.key, known)
		d.placed[e.key] = p
		switch p.place {
		case TopLevel:
			d.top[e.key] = e
		case OnFlow:
			if d.flows[p.flow] == nil {
				d.flows[p.flow] = map[string]entry{}
			}
			d.flows[p.flow][p.name] = e
		case OnCluster:
			if d.clusters[p.alias] == nil {
				d.clusters[p.alias] = map[string]entry{}
			}
			d.clusters[p.alias][p.name] = e
		}
	}
}

// unique keeps the last entry of each key, as Java does, and says so.
func unique(entries []entry, r *report) []entry {
	last := map[string]int{}
	for i, e := range entries {
		if j, ok := last[e.key]; ok {
			before := entries[j]
			if before.raw == e.raw {
				r.warn(e, "the key is also on line %d, with the same value", before.line)
			} else {
				r.warn(e, "the key is also on line %d, with another value; the last one counts", before.line)
			}
		}
		last[e.key] = i
	}
	var kept []entry
	for i, e := range entries {
		if last[e.key] == i {
			kept = append(kept, e)
		}
	}
	return kept
}
