package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mostName is how many characters of a name are shown to people: Kafka allows
// 249 in a topic's, of which a table shows two beside a dozen numbers.
const mostName = 40

// Name shortens a long name in the middle: its begin and its end tell it apart.
func Name(name string) string {
	runes := []rune(name)
	if len(runes) <= mostName {
		return name
	}
	const tail = mostName / 2
	return string(runes[:mostName-tail-1]) + "…" + string(runes[len(runes)-tail:])
}

// Names replaces the long names of a report's topics and groups in a text, as an
// error, by short ones.
func Names(r Report) *strings.Replacer {
	long := map[string]bool{}
	note := func(name string) {
		if Name(name) != name {
			long[name] = true
		}
	}
	for _, t := range r.Topics {
		note(t.Topic)
	}
	for _, h := range slices.Concat(r.Holes, r.Twice) {
		note(h.Topic)
	}
	for _, g := range r.Groups {
		note(g.Group)
	}
	// One may begin with another.
	var pairs []string
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(long))) {
		pairs = append(pairs, name, Name(name))
	}
	return strings.NewReplacer(pairs...)
}

// Count writes a number with a comma for every thousand.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Age writes how long ago something was, as short as a glance wants it: 0.4s,
// 3s, 4m12s, 2h, 5d. What lies ahead, by clocks that differ, is 0s.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 100*time.Millisecond:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("0.%ds", d/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return units(int64(d/time.Minute), "m", int64(d%time.Minute/time.Second), "s")
	case d < day:
		return units(int64(d/time.Hour), "h", int64(d%time.Hour/time.Minute), "m")
	}
	return Count(int64(d/day)) + "d"
}

func units(n int64, unit string, more int64, smaller string) string {
	if more == 0 {
		return fmt.Sprintf("%d%s", n, unit)
	}
	return fmt.Sprintf("%d%s%d%s", n, unit, more, smaller)
}

func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return Count(n) + " " + what
}

// are begins a sentence about so many.
func are(n int64, what string) string {
	if n == 1 {
		return counted(n, what) + " is"
	}
	return counted(n, what) + " are"
}
