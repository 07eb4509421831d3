package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/status"
	"mirrorless/shared/topics"
)

// plans is what plan says.
type plans struct {
	Flows []flowPlan `json:"flows"`
	// Mixed are topics that several of the flows copy into.
	Mixed []string `json:"mixed"`
}

// flowPlan is the plan of one flow. Lists are never null.
type flowPlan struct {
	Flow          string               `json:"flow"`
	Changes       bool                 `json:"changes"`
	Topics        []plannedTopic       `json:"topics"`
	Configs       []plannedConfig      `json:"configs"`
	EventSources  []plannedEventSource `json:"eventSources"`
	Begin         []plannedBegin       `json:"firstPositions"`
	ACLs          []string             `json:"acls"`
	Copies        []plannedCopy        `json:"copies"`
	NotCopied     []notCopied          `json:"notCopied"`
	MissingRights []missingRight       `json:"missingRights"`
	Warnings      []planWarning        `json:"warnings"`
	Errors        []string             `json:"errors"`
}

type plannedTopic struct {
	Action            string            `json:"action"` // create or grow
	Cluster           string            `json:"cluster"`
	Topic             string            `json:"topic"`
	Source            string            `json:"source,omitempty"` // the topic that is copied into it
	Partitions        int32             `json:"partitions"`
	Before            int32             `json:"partitionsBefore,omitempty"`
	ReplicationFactor int16             `json:"replicationFactor,omitempty"`
	Configs           map[string]string `json:"configs,omitempty"`
}

type plannedConfig struct {
	Topic  string  `json:"topic"`
	Config string  `json:"config"`
	Before *string `json:"before"` // null where the brokers do not tell
	After  *string `json:"after"`  // null for the brokers' default
}

type plannedEventSource struct {
	Action  string   `json:"action"` // create, update, or remove
	Topic   string   `json:"topic"`
	Group   string   `json:"group"`
	ID      string   `json:"id,omitempty"`
	Changes []string `json:"changes"`
}

type plannedBegin struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

type plannedCopy struct {
	Source     string `json:"source"`
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
}

type notCopied struct {
	Topic  string      `json:"topic"`
	Reason flow.Reason `json:"reason"`
	Why    string      `json:"why"`
}

type missingRight struct {
	Right    string `json:"right"`
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	Cluster  string `json:"cluster"`
	Text     string `json:"text"`
}

type planWarning struct {
	Message string            `json:"message"`
	Topic   string            `json:"topic,omitempty"`
	Detail  map[string]string `json:"detail,omitempty"`

	keys []string // of Detail, in their order
}

// describePlan is a plan in words that a program can read as well.
func describePlan(f config.Flow, p topics.Plan) flowPlan {
	out := flowPlan{
		Flow: f.String(), Changes: !p.Empty(),
		Topics: []plannedTopic{}, Configs: []plannedConfig{}, EventSources: []plannedEventSource{}, Begin: []plannedBegin{},
		ACLs: []string{}, Copies: []plannedCopy{}, NotCopied: []notCopied{}, MissingRights: []missingRight{}, Warnings: []planWarning{}, Errors: []string{},
	}
	for _, n := range slices.Concat(p.Create, p.Internal) {
		out.Topics = append(out.Topics, plannedTopic{
			Action: "create", Cluster: n.Cluster, Topic: n.Name, Source: n.Source,
			Partitions: n.Partitions, ReplicationFactor: n.ReplicationFactor, Configs: n.Configs,
		})
	}
	for _, g := range p.Grow {
		out.Topics = append(out.Topics, plannedTopic{Action: "grow", Cluster: f.Target, Topic: g.Topic, Source: g.Source, Partitions: g.To, Before: g.From})
	}
	for _, c := range p.Configs {
		out.Configs = append(out.Configs, describeConfigs(c)...)
	}
	for _, c := range p.EventSources {
		out.EventSources = append(out.EventSources, describeEventSource(c))
	}
	for _, tp := range p.Begin {
		if n := len(out.Begin); n == 0 || out.Begin[n-1].Topic != tp.Topic {
			out.Begin = append(out.Begin, plannedBegin{Topic: tp.Topic})
		}
		last := &out.Begin[len(out.Begin)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	for _, a := range p.ACLs {
		out.ACLs = append(out.ACLs, a.String())
	}
	for _, c := range p.Copies {
		out.Copies = append(out.Copies, plannedCopy{c.Source, c.Name, c.Partitions})
	}
	for _, s := range p.Skipped {
		out.NotCopied = append(out.NotCopied, notCopied{s.Topic, s.Reason, s.Reason.Explain()})
	}
	for _, w := range p.Warnings {
		out.Warnings = append(out.Warnings, describeWarning(w))
	}
	for _, err := range p.Problems {
		if right, ok := errors.AsType[*topics.RightError](err); ok {
			out.MissingRights = append(out.MissingRights, missingRight{right.Right, right.Resource, right.Name, right.Cluster, err.Error()})
			continue
		}
		out.Errors = append(out.Errors, err.Error())
	}
	return out
}

func describeConfigs(c topics.ConfigChange) []plannedConfig {
	var out []plannedConfig
	for _, op := range c.Ops {
		change := plannedConfig{Topic: c.Topic, Config: op.Name}
		if was, ok := c.Was[op.Name]; ok {
			change.Before = &was
		}
		if !op.Delete {
			change.After = &op.Value
		}
		out = append(out, change)
	}
	return out
}

func describeEventSource(c topics.EventSourceChange) plannedEventSource {
	out := plannedEventSource{Topic: cmp.Or(c.To.Topic, c.From.Topic), Group: cmp.Or(c.To.Group, c.From.Group), ID: c.ID, Changes: []string{}}
	change := func(what string, from, to any) {
		if from != to {
			out.Changes = append(out.Changes, fmt.Sprintf("%s %v → %v", what, from, to))
		}
	}
	switch c.Action {
	case topics.ActionCreate:
		out.Action = "create"
		out.Changes = append(out.Changes, fmt.Sprintf("batches of %d", c.To.BatchSize), fmt.Sprintf("window %v", c.To.Window))
		if c.To.PartialFailures {
			out.Changes = append(out.Changes, "ReportBatchItemFailures")
		}
	case topics.ActionUpdate:
		out.Action = "update"
		change("batch size", c.From.BatchSize, c.To.BatchSize)
		change("window", c.From.Window, c.To.Window)
		change("ReportBatchItemFailures", c.From.PartialFailures, c.To.PartialFailures)
		change("enabled", c.From.Enabled, c.To.Enabled)
		if c.Outdated {
			out.Changes = append(out.Changes, "login, metrics or pollers as the file has them")
		}
	case topics.ActionDisable:
		out.Action = "remove"
		out.Changes = append(out.Changes, "disabled first, deleted at a later round")
	default:
		out.Action = "remove"
	}
	return out
}

func describeWarning(w topics.Warning) planWarning {
	out := planWarning{Message: w.Message, Topic: w.Topic, Detail: map[string]string{}}
	for i := 0; i+1 < len(w.Detail); i += 2 {
		key := fmt.Sprint(w.Detail[i])
		out.Detail[key] = fmt.Sprint(w.Detail[i+1])
		out.keys = append(out.keys, key)
	}
	return out
}

// printPlans prints plans for a person: a sentence for each flow, then what it is
// made of.
func printPlans(w io.Writer, all plans) error {
	for i, p := range all.Flows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		p.print(w)
	}
	if len(all.Mixed) > 0 {
		fmt.Fprintln(w, "\nTopics that several flows copy into")
		for _, m := range all.Mixed {
			fmt.Fprintf(w, "  ! %s\n", m)
		}
	}
	return nil
}

func (p flowPlan) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", p.Flow, p.sentence())
	source, target := p.aliases()
	section(w, "Topics", p.topicLines())
	section(w, "Topic configs on "+target, p.configLines())
	section(w, "Event sources", p.eventSourceLines())
	section(w, "First positions on "+source, p.beginLines())
	section(w, "ACLs on "+target, marked("+", p.ACLs))
	var lines []string
	for _, s := range p.NotCopied {
		lines = append(lines, fmt.Sprintf("- %s\t%s", s.Topic, s.Why))
	}
	section(w, "Not copied", lines)
	lines = nil
	for _, r := range p.MissingRights {
		lines = append(lines, "! "+oneLine(r.Text))
	}
	section(w, "Missing rights", lines)
	lines = nil
	for _, warning := range p.Warnings {
		lines = append(lines, "! "+warning.line())
	}
	section(w, "Warnings", lines)
	section(w, "Errors", marked("!", p.Errors))
}

func (p flowPlan) aliases() (source, target string) {
	f, err := flow.Parse(p.Flow)
	if err != nil {
		return "the source", "the target"
	}
	return f.Source, f.Target
}

// sentence sums a plan up as terraform does.
func (p flowPlan) sentence() string {
	var add, change, remove int
	for _, t := range p.Topics {
		if t.Action == "create" {
			add++
		} else {
			change++
		}
	}
	for _, s := range p.EventSources {
		switch s.Action {
		case "create":
			add++
		case "update":
			change++
		default:
			remove++
		}
	}
	add += len(p.ACLs)
	change += len(p.Configs)
	wrong := len(p.Errors) + len(p.MissingRights)
	_, target := p.aliases()
	var said string
	switch {
	case p.Changes:
		said = fmt.Sprintf("%d to add, %d to change, %d to remove.", add, change, remove)
		if len(p.Begin) > 0 && add+change+remove == 0 {
			said = "only first positions are to be written."
		}
	case wrong > 0 && len(p.Copies) == 0:
		said = "there is no plan."
	default:
		if n := len(p.Copies); n == 1 {
			said = fmt.Sprintf("nothing to change; 1 topic is copied to %s.", target)
		} else {
			said = fmt.Sprintf("nothing to change; %s topics are copied to %s.", status.Count(int64(n)), target)
		}
	}
	if wrong > 0 {
		said += fmt.Sprintf(" %s in the way.", areThings(wrong))
	}
	return said
}

func areThings(n int) string {
	if n == 1 {
		return "1 thing is"
	}
	return fmt.Sprintf("%d things are", n)
}

func (p flowPlan) topicLines() []string {
	var lines []string
	for _, t := range p.Topics {
		if t.Action == "grow" {
			lines = append(lines, fmt.Sprintf("~ %s on %s\tpartitions %d → %d, as %s has", t.Topic, t.Cluster, t.Before, t.Partitions, t.Source))
			continue
		}
		what := []string{counted(int(t.Partitions), "partition"), "replication factor " + replicas(t.ReplicationFactor)}
		for _, name := range slices.Sorted(maps.Keys(t.Configs)) {
			what = append(what, name+"="+t.Configs[name])
		}
		from := ""
		if t.Source != "" {
			from = "copy of " + t.Source + ": "
		}
		lines = append(lines, fmt.Sprintf("+ %s on %s\t%s%s", t.Topic, t.Cluster, from, strings.Join(what, ", ")))
	}
	return lines
}

func replicas(factor int16) string {
	if factor < 0 {
		return "of the brokers"
	}
	return strconv.Itoa(int(factor))
}

func (p flowPlan) configLines() []string {
	var lines []string
	for _, c := range p.Configs {
		before, after := "?", "the brokers' default"
		if c.Before != nil {
			before = *c.Before
		}
		if c.After != nil {
			after = *c.After
		}
		lines = append(lines, fmt.Sprintf("~ %s\t%s: %s → %s", c.Topic, c.Config, before, after))
	}
	return lines
}

func (p flowPlan) eventSourceLines() []string {
	marks := map[string]string{"create": "+", "update": "~", "remove": "-"}
	var lines []string
	for _, s := range p.EventSources {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s\t%s", marks[s.Action], s.Topic, strings.Join(append(slices.Clone(s.Changes), "group "+s.Group), ", ")), "\t"))
	}
	return lines
}

func (p flowPlan) beginLines() []string {
	var lines []string
	for _, b := range p.Begin {
		lines = append(lines, fmt.Sprintf("+ %s\t%s", b.Topic, partitions(b.Partitions)))
	}
	return lines
}

// partitions writes rising numbers in ranges.
func partitions(numbers []int32) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(numbers[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d–%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	word := "partitions "
	if len(numbers) == 1 {
		word = "partition "
	}
	return word + strings.Join(parts, ", ")
}

func (w planWarning) line() string {
	line := w.Message
	if w.Topic != "" {
		line = w.Topic + ": " + line
	}
	keys := w.keys
	if keys == nil { // it came from another process
		keys = slices.Sorted(maps.Keys(w.Detail))
	}
	var detail []string
	for _, k := range keys {
		detail = append(detail, k+"="+w.Detail[k])
	}
	if len(detail) > 0 {
		line += " (" + strings.Join(detail, ", ") + ")"
	}
	return oneLine(line)
}

func marked(mark string, texts []string) []string {
	var lines []string
	for _, text := range texts {
		lines = append(lines, mark+" "+oneLine(text))
	}
	return lines
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// section prints lines, whose columns are parted by tabs, under a title.
func section(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintf(t, "  %s\n", line)
	}
	t.Flush()
}
