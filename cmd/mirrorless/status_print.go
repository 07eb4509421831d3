package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"mirrorless/shared/status"
)

// mostRows is how many partitions, or checkpoints, are shown where all are well.
const mostRows = 40

// printStatus prints the answers, then what they are made of.
func printStatus(w io.Writer, seen seenStatus) error {
	several := len(seen.reports) > 1
	for _, r := range seen.reports {
		if several {
			fmt.Fprintf(w, "%s: ", r.Flow)
		}
		fmt.Fprintln(w, r.Sentence)
	}
	switch {
	case seen.running != nil:
		fmt.Fprintf(w, "From the running mirrorless, process %d.\n", seen.running.PID)
	case seen.stack != "":
		fmt.Fprintf(w, "From the clusters, and from table and event sources of the stack %s.\n", seen.stack)
	default:
		fmt.Fprintf(w, "From the clusters and %s; no mirrorless runs with it.\n", seen.state)
	}
	for _, r := range seen.reports {
		if several {
			fmt.Fprintf(w, "\n%s\n", r.Flow)
		}
		p := printer{w, r, status.Names(r)}
		p.partitions()
		p.errors()
		p.holes()
		p.groups()
		p.eventSources()
	}
	return nil
}

// printer prints the parts of one report that are not empty.
type printer struct {
	io.Writer
	status.Report
	names *strings.Replacer // of long ones, in texts
}

// table prints a title, and rows under a header.
func (p printer) table(title string, header []string, rows [][]string, more string) {
	if len(rows) == 0 && more == "" {
		return
	}
	fmt.Fprintf(p, "\n%s\n", title)
	t := tabwriter.NewWriter(p, 0, 0, 2, ' ', tabwriter.StripEscape)
	if len(rows) > 0 {
		rows = append([][]string{header}, rows...)
	}
	for _, row := range rows {
		// A cell that is empty at the end would leave blanks there.
		for len(row) > 0 && row[len(row)-1] == "" {
			row = row[:len(row)-1]
		}
		fmt.Fprintf(t, "  %s\n", strings.Join(row, "\t"))
	}
	t.Flush()
	if more != "" {
		fmt.Fprintf(p, "  %s\n", more)
	}
}

func (p printer) partitions() {
	type row struct {
		cells []string
		well  bool
	}
	var all []row
	for _, t := range p.Topics {
		for _, q := range t.Partitions {
			all = append(all, row{
				cells: []string{
					status.Name(t.Topic), fmt.Sprint(q.Partition), number(q.Position, "none"), number(q.End, "unknown"), number(q.Behind, "unknown"),
					p.ago(q.Newest), status.Count(q.Copied), p.names.Replace(strings.Join(slices.DeleteFunc([]string{t.Note, q.Note}, func(s string) bool { return s == "" }), "; ")),
				},
				well: q.Behind == 0 && q.Prepared && q.Note == "" && q.LastError == nil,
			})
		}
	}
	more := ""
	if n := len(all); n > mostRows {
		all = slices.DeleteFunc(all, func(r row) bool { return r.well })
		if hidden := n - len(all); hidden > 0 {
			more = fmt.Sprintf("and %s partitions that are copied to the end; --json lists them", status.Count(int64(hidden)))
		}
	}
	rows := make([][]string, len(all))
	for i, r := range all {
		rows[i] = r.cells
	}
	p.table("Partitions", []string{"TOPIC", "PARTITION", "POSITION", "END OF " + p.Source.Alias, "BEHIND", "NEWEST", "COPIED", "NOTE"}, rows, more)
}

func (p printer) errors() {
	var rows [][]string
	add := func(what string, f *status.Failure) {
		if f == nil {
			return
		}
		attempts := ""
		if f.Attempts > 0 {
			attempts = status.Count(int64(f.Attempts))
		}
		rows = append(rows, []string{what, cmp.Or(attempts, "-"), p.ago(f.At), p.names.Replace(strings.ReplaceAll(f.Error, "\n", "; "))})
	}
	for _, c := range []status.Cluster{p.Source, p.Target} {
		if c.Error != "" {
			add("cluster "+c.Alias, &status.Failure{Error: c.Error})
		}
	}
	if p.EventSourcesError != "" {
		add("event sources", &status.Failure{Error: p.EventSourcesError})
	}
	for _, name := range slices.Sorted(maps.Keys(p.Functions)) {
		f := p.Functions[name]
		add(name, &f)
	}
	for _, t := range p.Topics {
		add(status.Name(t.Topic), t.LastError)
		for _, q := range t.Partitions {
			add(fmt.Sprintf("%s-%d", status.Name(t.Topic), q.Partition), q.LastError)
		}
	}
	p.table("Last errors", []string{"WHERE", "IN A ROW", "WHEN", "ERROR"}, rows, "")
}

func (p printer) holes() {
	p.ranges("Holes: offsets of "+p.Source.Alias+" of which something is not on "+p.Target.Alias, p.Holes)
	p.ranges("Twice: offsets of "+p.Target.Alias+" whose records were there before", p.Twice)
}

func (p printer) ranges(title string, holes []status.Hole) {
	holes = slices.Clone(holes)
	slices.SortStableFunc(holes, func(a, b status.Hole) int { return cmp.Compare(a.Kind, b.Kind) })
	more := ""
	if n := len(holes); n > mostRows {
		holes = holes[:mostRows]
		more = fmt.Sprintf("and %s more; --json lists them", status.Count(int64(n-mostRows)))
	}
	var rows [][]string
	for _, h := range holes {
		rows = append(rows, []string{
			h.Kind, status.Name(h.Topic), fmt.Sprint(h.Partition), status.Count(h.From), status.Count(h.To - 1), number(h.Records, "unknown"), p.ago(h.Seen),
		})
	}
	p.table(title,
		[]string{"KIND", "TOPIC", "PARTITION", "FIRST", "LAST", "RECORDS", "SEEN"}, rows, more)
}

func (p printer) groups() {
	var rows [][]string
	for _, g := range p.Groups {
		name := status.Name(g.Group)
		for _, q := range g.Partitions {
			rows = append(rows, []string{
				name, status.Name(q.Topic), fmt.Sprint(q.Partition), status.Count(q.Upstream), status.Count(q.Downstream), p.ago(q.Written),
			})
			name = ""
		}
	}
	header := []string{"GROUP", "TOPIC", "PARTITION", "ON " + p.Source.Alias, "ON " + p.Target.Alias, "WRITTEN"}
	more := ""
	if len(rows) > mostRows {
		header, rows = []string{"GROUP", "PARTITIONS", "WRITTEN"}, nil
		for _, g := range p.Groups {
			rows = append(rows, []string{status.Name(g.Group), status.Count(int64(len(g.Partitions))), p.ago(g.Written)})
		}
		more = "--json lists the offsets"
	}
	p.table("Groups: last checkpoints", header, rows, more)
}

func (p printer) eventSources() {
	var rows [][]string
	for _, t := range p.Topics {
		if s := t.EventSource; s != nil {
			partial := "no"
			if s.PartialFailures {
				partial = "yes"
			}
			rows = append(rows, []string{status.Name(t.Topic), cmp.Or(s.State, "-"), partial, p.names.Replace(cmp.Or(s.LastResult, "-")), p.names.Replace(s.Group)})
		}
	}
	p.table("Event sources", []string{"TOPIC", "STATE", "PARTIAL FAILURES", "LAST RESULT", "GROUP"}, rows, "")
}

// ago says how long before the report something was.
func (p printer) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return status.Age(p.At.Sub(t)) + " ago"
}

func number(n int64, unknown string) string {
	if n < 0 {
		return unknown
	}
	return status.Count(n)
}
