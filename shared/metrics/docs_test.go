package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"mirrorless/docs/docstest"
	"mirrorless/shared/config"
	"mirrorless/shared/metrics"
)

//go:generate go test -run TestDocumentationIsCurrent -update .

func TestDocumentationIsCurrent(t *testing.T) {
	docstest.Current(t, "metrics.md", page())
}

func TestEveryMetricIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range metrics.Table() {
		if m.Unit == "" || m.From == "" || !strings.HasSuffix(m.Sentence, ".") || seen[m.Name] {
			t.Errorf("%+v is incomplete, or there twice", m)
		}
		seen[m.Name] = true
	}
	// What MirrorMaker 2 has, by the MBeans of MirrorSourceConnector and
	// MirrorCheckpointConnector.
	for _, name := range []string{"record-count", "record-rate", "byte-count", "byte-rate", "record-age-ms", "replication-latency-ms", "checkpoint-latency-ms"} {
		if !seen[name] {
			t.Errorf("%s of MirrorMaker 2 is missing", name)
		}
	}
}

func page() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from the table in shared/metrics by: go generate ./shared/metrics -->
# Metrics

The functions print their metrics as lines of CloudWatch's embedded metric format. In AWS, CloudWatch Logs makes metrics of them, in the namespace ` + "`mirrorless`" + `, without any request of the functions. On your machine, ` + "`mirrorless run --metrics FILE`" + ` appends the same lines to a file. The template's dashboard and alarms are made of these metrics.

## What they are of

` + "`mirrorless.metrics`" + ` says it. CloudWatch takes about $0.30 a month for each metric that has data all the month, and less in proportion:

| ` + "`mirrorless.metrics`" + ` | dimensions | metrics |
|---|---|---|
`)
	flowWide, byTopic := 0, 0
	for _, m := range metrics.Table() {
		flowWide++
		if of := m.Of[config.MetricsTopics]; len(of) == 1 {
			byTopic++
		}
	}
	fmt.Fprintf(&b, "| `flow` (default) | `source`, `target` | %d |\n", flowWide)
	fmt.Fprintf(&b, "| `topics` | these, and `source`, `target`, `topic` | %d more of each topic, and 1 of each group and topic |\n", byTopic)
	fmt.Fprintf(&b, "| `partitions` | these, and `source`, `target`, `topic`, `partition` | %d more of each partition, and 1 of each group and partition |\n", byTopic)
	b.WriteString("| `off` | | none: the alarms on them see nothing, and a stack that is made so has none on the heartbeat |\n")
	b.WriteString(`
` + "`topic`" + ` is the topic on the target, A.orders, as in MirrorMaker 2's MBeans. Clusters go by their aliases.

## Which there are

Every metric is there, at zero, after the first minute of a flow, also of one that has nothing to copy. mirror writes with every batch, and nothing while nothing flows; checkpoint and topics write a line a minute; heartbeat writes none. An invocation tells of a record once the position behind it is stored, so that a record counts once, also where invocations are killed. (CloudWatch itself promises each line at least once.)

`)
	b.WriteString("| metric | unit | of | from | what it is | MirrorMaker 2 |\n|---|---|---|---|---|---|\n")
	for _, m := range metrics.Table() {
		of := "flow"
		switch names := m.Of[config.MetricsTopics]; len(names) {
		case 1:
			of = "flow, topic, partition"
		case 2:
			of = "flow; group and topic, group and partition"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Name, m.Unit, of, m.From, m.Sentence, m.MM2)
	}
	b.WriteString(`
A line has at most 100 values of a metric, so the times of a batch with more records are written as 100 values with the same minimum, maximum and mean (of one record in hundreds that is far older than all others, the mean is near). Their percentiles say nothing.

Lambda itself has more: errors, throttles and times of each function, and, with ` + "`mirrorless.mapping.metrics = true`" + `, the events, errors and lag of each event source.
`)
	return b.String()
}
