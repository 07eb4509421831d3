package flow

import "strings"

// Lists that MirrorMaker 2 4.3.1 uses where a file does not set the key.
const (
	DefaultTopics                  = ".*"
	DefaultTopicsExclude           = `mm2.*\.internal, .*\.replica, __.*`
	DefaultGroups                  = ".*"
	DefaultGroupsExclude           = "console-consumer-.*, connect-.*, __.*"
	DefaultConfigPropertiesExclude = `follower\.replication\.throttled\.replicas, ` +
		`leader\.replication\.throttled\.replicas, ` +
		`message\.timestamp\.difference\.max\.ms, ` +
		`log\.message\.timestamp\.before\.max\.ms, ` +
		`log\.message\.timestamp\.after\.max\.ms, ` +
		`message\.timestamp\.type, ` +
		`unclean\.leader\.election\.enable, ` +
		`min\.insync\.replicas`
)

// SplitList splits a list value as Kafka's ConfigDef does: at commas, blanks
// around them dropped, a blank value giving an empty list. An empty element
// stays.
func SplitList(value string) []string {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil
	}
	elements := strings.Split(value, ",")
	for i, e := range elements {
		elements[i] = strings.TrimSpace(e)
	}
	return elements
}

// Filter passes the names that Include matches and Exclude does not. The zero
// Filter passes nothing.
type Filter struct {
	Include Patterns
	Exclude Patterns
}

// ParseFilter makes a Filter of two list values, such as those of topics and
// topics.exclude.
func ParseFilter(include, exclude string) (Filter, error) {
	in, err := CompilePatterns(SplitList(include))
	if err != nil {
		return Filter{}, err
	}
	ex, err := CompilePatterns(SplitList(exclude))
	if err != nil {
		return Filter{}, err
	}
	return Filter{Include: in, Exclude: ex}, nil
}

// Match reports whether name passes. A pattern that ran out of time does not let
// a name pass; [Selector] says so in its verdict.
func (f Filter) Match(name string) bool { return f.reason(name) == "" }

func (f Filter) reason(name string) Reason {
	included, err := f.Include.TryMatch(name)
	if err != nil {
		return ReasonTimeout
	}
	if !included {
		return ReasonNotIncluded
	}
	excluded, err := f.Exclude.TryMatch(name)
	if err != nil {
		return ReasonTimeout
	}
	if excluded {
		return ReasonExcluded
	}
	return ""
}

// ConfigFilter says which configs of a topic are copied, as Kafka's
// DefaultConfigPropertyFilter does. The zero ConfigFilter copies every config
// that somebody set.
type ConfigFilter struct {
	// Exclude is config.properties.exclude.
	Exclude Patterns
	// DefaultsFromSource is use.defaults.from=source: what the source's brokers
	// have as default is written to the target as well.
	DefaultsFromSource bool
}

// Match reports whether a config that somebody set on the source is copied.
func (f ConfigFilter) Match(property string) bool {
	excluded, err := f.Exclude.TryMatch(property)
	return err == nil && !excluded
}

// MatchDefault reports whether a config is copied that has the source's default.
func (f ConfigFilter) MatchDefault(property string) bool {
	return f.DefaultsFromSource && f.Match(property)
}
