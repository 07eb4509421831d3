package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mirrorless/shared/flow"
)

// splitList splits a list value: blanks round the items go, and so do empty
// items, which a comma too many leaves behind.
func splitList(value string) []string {
	return slices.DeleteFunc(flow.SplitList(value), func(item string) bool { return item == "" })
}

// settings is one set of keys with their values: what is in force for a flow,
// or what one client gets.
type settings struct {
	values map[string]entry
	report *report
}

func (s settings) written(key string) bool {
	_, ok := s.values[key]
	return ok
}

// text returns the value of key, or byDefault where nobody wrote it.
func (s settings) text(key, byDefault string) string {
	if e, ok := s.values[key]; ok {
		return e.value
	}
	return byDefault
}

func (s settings) list(key, byDefault string) []string {
	return splitList(s.text(key, byDefault))
}

// boolean takes what Kafka's ConfigDef takes: true and false in any case.
func (s settings) boolean(key string, byDefault bool) bool {
	e, ok := s.values[key]
	if !ok {
		return byDefault
	}
	switch strings.ToLower(e.value) {
	case "true":
		return true
	case "false":
		return false
	}
	s.bad(e, "set true or false")
	return false
}

// number takes whole numbers from least to most.
func (s settings) number(key string, byDefault, least, most int64) int64 {
	e, ok := s.values[key]
	if !ok {
		return byDefault
	}
	n, err := strconv.ParseInt(e.value, 10, 64)
	switch {
	case err != nil:
		s.bad(e, "set a whole number")
	case n < least || n > most:
		s.bad(e, "set a whole number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	default:
		return n
	}
	return byDefault
}

// factor takes a replication factor; -1 leaves it to the broker.
func (s settings) factor(key string, byDefault int16) ReplicationFactor {
	f := ReplicationFactor{Key: key, Value: byDefault, Written: s.written(key)}
	if e, ok := s.values[key]; ok {
		f.Key = e.key
		if n := s.number(key, int64(byDefault), -1, 1<<15-1); n != 0 {
			f.Value = int16(n)
		} else {
			s.bad(e, "set a number of replicas, or -1 for the broker's default")
		}
	}
	return f
}

// periodic reads a pair of keys; a negative interval switches the work off, as
// MirrorMaker 2's scheduler does.
func (s settings) periodic(enabledKey string, enabled bool, intervalKey string, seconds int64) Periodic {
	const most = int64(1<<63-1) / int64(time.Second)
	p := Periodic{
		Enabled:  s.boolean(enabledKey, enabled),
		Interval: time.Duration(s.number(intervalKey, seconds, -most, most)) * time.Second,
	}
	switch e := s.values[intervalKey]; {
	case p.Interval < 0:
		s.report.warn(e, "a negative interval switches %s off", enabledKey)
		p = Periodic{Interval: time.Duration(seconds) * time.Second}
	case p.Interval == 0:
		s.bad(e, "set 1 or more, or "+enabledKey+" = false")
		p.Interval = time.Duration(seconds) * time.Second
	}
	return p
}

func (s settings) millis(key string, byDefault, least, most int64) time.Duration {
	return time.Duration(s.number(key, byDefault, least, most)) * time.Millisecond
}

// choice takes one of the words, in any case, and returns it in lower case.
func (s settings) choice(key, byDefault string, words []string) string {
	e, ok := s.values[key]
	if !ok {
		return byDefault
	}
	if word := strings.ToLower(e.value); slices.Contains(words, word) {
		return word
	}
	s.bad(e, "set "+strings.Join(words, " or "))
	return byDefault
}

// pollerGroup is the pattern of Lambda's API for a PollerGroupName.
var pollerGroup = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// pollers reads the keys of provisioned mode.
func (s settings) pollers() Pollers {
	const least, most, group = "mirrorless.mapping.pollers.min", "mirrorless.mapping.pollers.max", "mirrorless.mapping.pollers.group"
	p := Pollers{
		Minimum: int32(s.number(least, 0, 1, 200)),
		Maximum: int32(s.number(most, 0, 1, 2000)),
		Group:   s.text(group, ""),
	}
	switch e := s.values[group]; {
	case p.Maximum > 0 && p.Minimum > p.Maximum:
		e := s.values[most]
		s.report.err(e, "%d is below %s, which is %d on line %d: set it to %[3]d or more", p.Maximum, least, p.Minimum, s.values[least].line)
	case p.Group == "":
	case !pollerGroup.MatchString(p.Group):
		s.bad(e, "set 1 to 128 letters, digits, hyphens and underscores")
	case !s.written(least) && !s.written(most):
		s.report.err(e, "only provisioned pollers have a group: set %s, or remove the group", least)
	}
	return p
}

func (s settings) bad(e entry, hint string) {
	// A placeholder that did not resolve has been reported as one.
	if reference.MatchString(e.value) {
		return
	}
	s.report.err(e, "%s is not valid: %s", e.quote(), hint)
}
