package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Judge answers "is B complete?" from the facts of a report, for programs and in
// one sentence. It looks at nothing else.
func Judge(r Report) (Answer, string) {
	f := count(r)
	a, b := r.Source.Alias, r.Target.Alias
	at := r.At.Format("15:04:05.000")
	var answer Answer
	var main string
	switch {
	case r.Source.replaced():
		answer, main = Unknown, replaced(b, r.Source)
	case r.Target.replaced():
		answer, main = Unknown, replaced(b, r.Target)
	case r.Source.Error != "":
		answer, main = Unknown, fmt.Sprintf("%s cannot be judged: %s does not answer (%s)", b, a, f.short(r.Source.Error))
		if !f.newest.IsZero() {
			main += fmt.Sprintf("; the newest record it has is %s old", Age(r.At.Sub(f.newest)))
		}
	case f.partitions == 0:
		answer, main = No, fmt.Sprintf("%s is not fed: %s has no topic that %s copies", b, a, r.Flow)
	case f.behind > 0:
		answer = No
		main = fmt.Sprintf("%s is %s behind %s in %s", b, counted(f.behind, "record"), a, share(f.late, f.partitions))
		if r.Target.Error != "" {
			// It may hold more, what was not stored yet, or have lost some.
			answer = Unknown
			main += ", by what is stored"
		}
		if !f.oldest.IsZero() {
			main += fmt.Sprintf("; the oldest of them is %s old", Age(r.At.Sub(f.oldest)))
		}
		if f.unknown > 0 {
			main += "; nothing is known of " + share(f.unknown, f.partitions)
		}
	case f.unknown > 0:
		answer, main = Unknown, fmt.Sprintf("%s cannot be judged in %s (%s)", b, share(f.unknown, f.partitions), f.why)
	case r.Target.Error != "":
		answer, main = Unknown, fmt.Sprintf("%s held everything that %s had at %s, by what is stored", b, a, at)
	default:
		answer, main = Yes, fmt.Sprintf("%s holds everything that %s had at %s", b, a, at)
	}
	notes := f.notes(r)
	if answer == Yes && (f.missing > 0 || f.expired > 0 || f.lost > 0 || f.failed > 0 || f.troubled > 0 || len(r.Functions) > 0) {
		answer = No
		main += ", but " + notes[0]
		notes = notes[1:]
	}
	return answer, strings.Join(append([]string{main}, notes...), "; ") + "."
}

func replaced(b string, c Cluster) string {
	return fmt.Sprintf("%s cannot be judged: %s is another cluster than the one that the state describes (%s, not %s)", b, c.Alias, c.ID, c.Stored)
}

// facts are what a sentence is made of, added up over the topics that count.
type facts struct {
	names                                         *strings.Replacer
	partitions, late, unknown, unprepared, failed int
	behind, expired, lost                         int64
	oldest, newest                                time.Time
	why, failure                                  string // of the first one
	troubled                                      int    // event sources
	trouble                                       string // of the first one

	holes   int
	records int64 // in holes, -1 where one does not know
	missing int   // holes that are not known to be empty
	twice   int64 // records that are on B twice
}

func count(r Report) facts {
	f := facts{names: Names(r)}
	for _, t := range r.Topics {
		name := Name(t.Topic)
		if trouble := t.EventSource.trouble(); trouble != "" {
			if f.troubled == 0 {
				f.trouble = name + ": " + f.short(trouble)
			}
			f.troubled++
		}
		if t.Heartbeats {
			continue
		}
		f.fail(name, t.LastError)
		for _, p := range t.Partitions {
			f.add(fmt.Sprintf("%s-%d", name, p.Partition), p)
		}
	}
	for _, h := range r.Holes {
		f.holes++
		if h.Records != 0 {
			f.missing++
		}
		if f.records >= 0 && h.Records >= 0 {
			f.records += h.Records
		} else {
			f.records = -1
		}
	}
	for _, h := range r.Twice {
		f.twice += max(0, h.Records)
	}
	return f
}

func (f *facts) add(name string, p Partition) {
	f.partitions++
	f.fail(name, p.LastError)
	switch {
	case p.Behind > 0:
		f.late++
		f.behind += p.Behind
	case p.Behind < 0:
		if f.unknown == 0 {
			f.why = name + ": " + f.short(p.Note)
		}
		f.unknown++
	}
	if !p.Prepared {
		f.unprepared++
	}
	f.expired += p.Expired
	f.lost += p.Lost
	if !p.Oldest.IsZero() && (f.oldest.IsZero() || p.Oldest.Before(f.oldest)) {
		f.oldest = p.Oldest
	}
	if p.Newest.After(f.newest) {
		f.newest = p.Newest
	}
}

func (f *facts) fail(name string, failure *Failure) {
	if failure == nil {
		return
	}
	if f.failed == 0 {
		f.failure = name + ": " + f.short(failure.Error)
	}
	f.failed++
}

// notes are what is to be said besides, the worst first.
func (f *facts) notes(r Report) []string {
	a, b := r.Source.Alias, r.Target.Alias
	var notes []string
	if f.lost > 0 {
		notes = append(notes, fmt.Sprintf("%s has lost %s", b, counted(f.lost, "record")))
	}
	if f.expired > 0 {
		notes = append(notes, fmt.Sprintf("%s deleted %s before they were copied", a, counted(f.expired, "offset")))
	}
	if f.failed > 0 {
		notes = append(notes, "copying fails ("+f.failure)
		if f.failed > 1 {
			notes[len(notes)-1] += fmt.Sprintf("; and %d more", f.failed-1)
		}
		notes[len(notes)-1] += ")"
	}
	if f.troubled > 0 {
		note := are(int64(f.troubled), "event source") + " not at work (" + f.trouble
		if f.troubled > 1 {
			note += "; …"
		}
		notes = append(notes, note+")")
	}
	if r.EventSourcesError != "" {
		notes = append(notes, "nothing is known of the event sources ("+f.short(r.EventSourcesError)+")")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		notes = append(notes, fmt.Sprintf("%s fails (%s)", name, f.short(r.Functions[name].Error)))
	}
	if f.holes > 0 {
		note := are(int64(f.holes), "hole") + " recorded"
		if f.records >= 0 {
			note += " (" + counted(f.records, "record") + ")"
		}
		notes = append(notes, note)
	}
	if f.twice > 0 {
		notes = append(notes, are(f.twice, "record")+" on "+b+" twice")
	}
	if f.unprepared > 0 && r.Source.Error == "" {
		notes = append(notes, share(f.unprepared, f.partitions)+" not prepared yet")
	}
	if r.Target.Error != "" {
		notes = append(notes, fmt.Sprintf("%s does not answer (%s)", b, f.short(r.Target.Error)))
	}
	return notes
}

// share says "3 of 12 partitions".
func share(n, of int) string {
	return fmt.Sprintf("%s of %s", Count(int64(n)), counted(int64(of), "partition"))
}

// short is the first line of a text, cut where it is long.
func (f *facts) short(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text = f.names.Replace(text)
	const most = 200
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}
