package config

import (
	"slices"
	"strings"

	"mirrorless/shared/flow"
)

// checkLoops refuses rings of enabled flows that keep the names of topics: no
// name says where a record came from, so it goes round for ever.
func checkLoops(enabled []Flow, entryOf func(flow.Flow) entry, r *report) {
	var keeping []Flow
	for _, f := range enabled {
		if f.Policy.Identity() {
			keeping = append(keeping, f)
		}
	}
	for _, ring := range rings(keeping) {
		var filters []flow.Filter
		var names []string
		for _, f := range ring {
			filters = append(filters, f.TopicFilter)
			names = append(names, f.Flow.String())
		}
		witness, ok := overlap(filters)
		if !ok {
			continue
		}
		example := ""
		if witness != "" {
			example = ", for example " + witness
		}
		last := ring[len(ring)-1]
		r.err(entryOf(last.Flow), "%s keep the names of topics and copy the same ones%s, so every record would go round for ever: set enabled = false on one, let their topics differ, or use %s",
			strings.Join(names, " and "), example, flow.DefaultPolicyClass)
	}
}

// rings returns every way round through different clusters, each once.
func rings(flows []Flow) [][]Flow {
	var found [][]Flow
	var follow func(first int, path []Flow)
	follow = func(first int, path []Flow) {
		last := path[len(path)-1]
		if last.Target == path[0].Source {
			found = append(found, slices.Clone(path))
			return
		}
		// A ring is told from the first of its flows: none before it joins in.
		for _, next := range flows[first:] {
			visited := slices.ContainsFunc(path, func(f Flow) bool { return f.Source == next.Source })
			if next.Source == last.Target && !visited {
				follow(first, append(path, next))
			}
		}
	}
	for i, f := range flows {
		follow(i, []Flow{f})
	}
	return found
}
