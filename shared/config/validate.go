package config

import (
	"regexp"
	"slices"
	"strings"

	"mirrorless/shared/flow"
)

// validate judges what several keys say together.
func (d *document) validate(c *Config, keys []Key, r *report) {
	enabled := c.Enabled()
	if len(enabled) == 0 && len(d.aliases) > 0 {
		r.warn(d.top["clusters"], "no flow is enabled, so nothing is copied: set A->B.enabled = true, with aliases of yours")
	}
	d.checkSameServers(c, r)
	for _, f := range enabled {
		s := settings{d.effective(f.Flow, keys), r}
		s.checkLists(f)
		s.checkOffsetSyncs(f)
		s.checkNames(f)
		s.checkDeadLetters(f)
		d.checkStart(f, r)
	}
	d.checkAliases(enabled, r)
	checkLoops(enabled, func(f flow.Flow) entry { return d.flows[f]["enabled"] }, r)
}

// checkLists looks at lists that compile and yet say something else than meant.
func (s settings) checkLists(f Flow) {
	for key, items := range map[string][]string{
		"topics": f.Topics, "topics.exclude": f.TopicsExclude, "groups": f.Groups, "groups.exclude": f.GroupsExclude,
	} {
		e, ok := s.values[key]
		if !ok || reference.MatchString(e.value) {
			continue
		}
		for i, item := range items {
			switch {
			case key == "topics" && slices.Contains(items[:i], item):
				s.report.err(e, "%q is there twice, which MirrorMaker 2 refuses: remove one", item)
			case strings.Contains(key, "topics") && strings.ContainsFunc(item, func(c rune) bool { return c > '~' }):
				s.report.warn(e, "%q matches no topic: names of topics are made of a-z, A-Z, 0-9, dot, underscore and hyphen (a file is read as ISO 8859-1)", item)
			case strings.ContainsAny(item, `"'`):
				s.report.warn(e, "the quotation mark belongs to the pattern %s, so that it matches no %s: write %s", item, what(key), unquoted(item))
			case isGlob(item):
				s.report.warn(e, "%s is a regular expression, in which * only repeats the %q before it: did you mean %s.*?", item, item[len(item)-2:len(item)-1], strings.TrimSuffix(item, "*"))
			}
		}
	}
	if e, ok := s.values["topics"]; ok && len(f.Topics) == 0 {
		s.report.warn(e, "the list is empty, so no topic of %s is copied but heartbeats", f.Source)
	}
}

// what a list is of.
func what(key string) string {
	if strings.HasPrefix(key, "groups") {
		return "group without one in its name"
	}
	return "topic"
}

var quotes = strings.NewReplacer(`"`, "", "'", "")

func unquoted(s string) string { return quotes.Replace(s) }

// glob ends in a star that repeats one plain character: a file name's pattern,
// most likely. \d* and \w* are none.
var glob = regexp.MustCompile(`(?:^|[^\\])[A-Za-z0-9_-]\*$`)

func isGlob(pattern string) bool { return glob.MatchString(pattern) }

// checkOffsetSyncs repeats MirrorMaker 2's rules for emit.offset-syncs.enabled.
func (s settings) checkOffsetSyncs(f Flow) {
	off, ok := s.values["emit.offset-syncs.enabled"]
	if !ok || f.EmitOffsetSyncs || !strings.EqualFold(off.value, "false") {
		return
	}
	for _, key := range []string{"offset-syncs.topic.location", "offset-syncs.topic.replication.factor"} {
		if e, ok := s.values[key]; ok {
			s.report.err(e, "MirrorMaker 2 refuses it beside emit.offset-syncs.enabled = false on line %d: remove one of them", off.line)
		}
	}
	if f.EmitCheckpoints.Enabled {
		s.report.warn(off, "checkpoints of %s are written all the same, by the exact map of offsets; MirrorMaker 2 would refuse to", f.Flow)
	}
}

// checkNames looks at aliases and separators that make names hard to read back.
func (s settings) checkNames(f Flow) {
	for _, a := range []struct{ key, name, alias string }{
		{"source.cluster.alias", f.SourceAlias, f.Source}, {"target.cluster.alias", f.TargetAlias, f.Target},
	} {
		e, ok := s.values[a.key]
		if !ok || a.name == a.alias {
			continue
		}
		s.report.warn(e, "%s goes by the name %q in topic names and internal records, instead of by its alias", a.alias, a.name)
	}
	e := s.values["replication.policy.separator"]
	if e.key == "" {
		e = s.values["source.cluster.alias"]
	}
	if f.PolicyClass == flow.DefaultPolicyClass && f.SourceAlias+f.Separator == "" {
		s.report.warn(e, "alias and separator are empty: topics keep their names, and nothing in them stops a loop; %s says the same more clearly", flow.IdentityPolicyClass)
	} else if f.PolicyClass == flow.DefaultPolicyClass && f.Separator == "" {
		s.report.warn(e, "without a separator names like %s cannot be read back, and a loop is not noticed", f.RemoteTopic("orders"))
	}
}

// legalTopic are the names that Kafka takes, but for . and ..
// (org.apache.kafka.common.internals.Topic).
var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// checkDeadLetters looks at the name of the dead-letter topic where there will be
// one. To Connect an empty name is no topic, and here there is none without.
func (s settings) checkDeadLetters(f Flow) {
	e, ok := s.values["errors.deadletterqueue.topic.name"]
	switch {
	case !ok || !f.TolerateErrors:
	case e.value == "":
		s.bad(e, "errors.tolerance = all needs a dead-letter topic: set a name, or remove the line for "+deadLetters(f.Source))
	case !legalTopic.MatchString(e.value) || e.value == "." || e.value == "..":
		s.bad(e, "set a topic's name: 1 to 249 of a-z, A-Z, 0-9, dot, underscore and hyphen, but not . or ..")
	}
}

// checkStart looks at settings of the source's consumer that an event source
// has no word for.
func (d *document) checkStart(f Flow, r *report) {
	consumer := d.flowClient(f.Flow, "source", f.Source, Consumer)
	reset := consumer["auto.offset.reset"]
	switch f.AutoOffsetReset {
	case "none":
		r.warn(reset, "an event source cannot be told to stop at a gap, so it starts at the earliest record; gaps are found by the records' offsets (mirrorless.holes)")
	case "latest":
		r.warn(reset, "the event source of a topic starts at the time of its first deployment, for at the latest record it would lose what arrives while it is being made")
	}
}

// checkSameServers warns of one cluster under two aliases; whether it is one,
// only the brokers can say.
func (d *document) checkSameServers(c *Config, r *report) {
	first := map[string]string{}
	for _, cluster := range c.Clusters {
		for _, server := range cluster.BootstrapServers {
			if other, ok := first[server]; ok && other != cluster.Alias {
				r.warn(d.connection(cluster.Alias)["bootstrap.servers"], "%s is also a server of %s: a flow between them would copy a cluster into itself", server, other)
			}
			first[server] = cluster.Alias
		}
	}
}

// checkAliases warns where one alias with the separator begins another one.
func (d *document) checkAliases(enabled []Flow, r *report) {
	for _, f := range enabled {
		if f.Policy.Identity() || f.Separator == "" {
			continue
		}
		for _, a := range d.aliases {
			for _, b := range d.aliases {
				if strings.HasPrefix(b, a+f.Separator) {
					r.warn(d.top["clusters"], "the alias %s begins with the alias %s and the separator %q: a topic of %s may look like one of %s, and MirrorMaker 2 would miss a loop", b, a, f.Separator, a, b)
				}
			}
		}
	}
}
