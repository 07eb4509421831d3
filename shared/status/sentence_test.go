package status_test

import (
	"strings"
	"testing"
	"time"

	"mirrorless/shared/status"
)

var noon = time.Date(2026, 3, 4, 12, 3, 7, 412_000_000, time.UTC)

// partitions of a topic, numbered, that are copied to the end unless they say
// otherwise.
func topicOf(name string, partitions ...status.Partition) status.Topic {
	t := status.Topic{Topic: name, Remote: "A." + name}
	for i, p := range partitions {
		p.Partition = int32(i)
		t.Partitions = append(t.Partitions, p)
	}
	return t
}

func fedBy(t status.Topic, s status.EventSource) status.Topic {
	t.EventSource = &s
	return t
}

func done() status.Partition {
	return status.Partition{Prepared: true, Newest: noon.Add(-3 * time.Second)}
}

func late(records int64, age time.Duration) status.Partition {
	return status.Partition{Prepared: true, Behind: records, Oldest: noon.Add(-age)}
}

func TestTheSentenceAnswersWhetherTheTargetIsComplete(t *testing.T) {
	failing := late(5, time.Minute)
	failing.LastError = &status.Failure{Error: "produce A.orders-1: nothing listens there\nand more"}
	failed := done()
	failed.LastError = &status.Failure{Error: "fetch orders-0: timed out"}
	expired, lost := done(), done()
	expired.Expired = 50
	lost.Lost = 1
	unknown := status.Partition{Prepared: true, Behind: -1, Note: "A does not say where it ends: LEADER_NOT_AVAILABLE"}
	fresh := status.Partition{Behind: 10}
	long := "com.example.orders." + strings.Repeat("europe.", 25) + "orders.dead.letters"
	refused := done()
	refused.LastError = &status.Failure{Error: "produce A." + long + "-0: refused"}
	heartbeats := topicOf("heartbeats", late(1, time.Second))
	heartbeats.Heartbeats = true
	dark := "connect to cluster A at 127.0.0.1:9 over PLAINTEXT: nothing listens there"

	for name, c := range map[string]struct {
		report status.Report
		answer status.Answer
		want   string
	}{
		"complete": {
			status.Report{Topics: []status.Topic{topicOf("orders", done(), done()), heartbeats}},
			status.Yes, "B holds everything that A had at 12:03:07.412.",
		},
		"behind": {
			status.Report{Topics: []status.Topic{topicOf("orders", late(1200, 4*time.Minute+12*time.Second), done()), topicOf("users", late(34, time.Second))}},
			status.No, "B is 1,234 records behind A in 2 of 3 partitions; the oldest of them is 4m12s old.",
		},
		"behind by one record of no known age": {
			status.Report{Topics: []status.Topic{topicOf("orders", status.Partition{Prepared: true, Behind: 1})}},
			status.No, "B is 1 record behind A in 1 of 1 partition.",
		},
		"behind and failing": {
			status.Report{Topics: []status.Topic{topicOf("orders", done(), failing)}},
			status.No, "B is 5 records behind A in 1 of 2 partitions; the oldest of them is 1m old; copying fails (orders-1: produce A.orders-1: nothing listens there).",
		},
		"behind, with the rest unknown": {
			status.Report{Topics: []status.Topic{topicOf("orders", late(2, time.Second), unknown)}},
			status.No, "B is 2 records behind A in 1 of 2 partitions; the oldest of them is 1s old; nothing is known of 1 of 2 partitions.",
		},
		"not begun": {
			status.Report{Topics: []status.Topic{topicOf("orders", fresh, fresh)}},
			status.No, "B is 20 records behind A in 2 of 2 partitions; 2 of 2 partitions not prepared yet.",
		},
		"complete but for holes": {
			status.Report{
				Topics: []status.Topic{topicOf("orders", done())},
				Holes:  []status.Hole{{Kind: "unexplained", Records: 16}, {Kind: "null headers", Records: 1}},
			},
			status.No, "B holds everything that A had at 12:03:07.412, but 2 holes are recorded (17 records).",
		},
		"complete, and more": {
			status.Report{Topics: []status.Topic{topicOf("orders", done())}, Twice: []status.Hole{{Kind: "second copy", Records: 1}}},
			status.Yes, "B holds everything that A had at 12:03:07.412; 1 record is on B twice.",
		},
		"complete, with a hole in which no record was": {
			status.Report{Topics: []status.Topic{topicOf("orders", done())}, Holes: []status.Hole{{Kind: "markers", Records: 0}}},
			status.Yes, "B holds everything that A had at 12:03:07.412; 1 hole is recorded (0 records).",
		},
		"complete but for a hole of unknown size": {
			status.Report{Topics: []status.Topic{topicOf("orders", done())}, Holes: []status.Hole{{Kind: "x", Records: -1}, {Kind: "y", Records: 1}}},
			status.No, "B holds everything that A had at 12:03:07.412, but 2 holes are recorded.",
		},
		"retention was faster": {
			status.Report{Topics: []status.Topic{topicOf("orders", expired)}},
			status.No, "B holds everything that A had at 12:03:07.412, but A deleted 50 offsets before they were copied.",
		},
		"the target lost records": {
			status.Report{Topics: []status.Topic{topicOf("orders", lost, expired)}},
			status.No, "B holds everything that A had at 12:03:07.412, but B has lost 1 record; A deleted 50 offsets before they were copied.",
		},
		"complete, and failing": {
			status.Report{Topics: []status.Topic{topicOf("orders", failed, failed, failed)}},
			status.No, "B holds everything that A had at 12:03:07.412, but copying fails (orders-0: fetch orders-0: timed out; and 2 more).",
		},
		"complete, with a function that fails": {
			status.Report{Topics: []status.Topic{topicOf("orders", done())}, Functions: map[string]status.Failure{
				"topics": {Error: "describe configs: not authorized"}, "checkpoint": {Error: "timed out"},
			}},
			status.No, "B holds everything that A had at 12:03:07.412, but checkpoint fails (timed out); topics fails (describe configs: not authorized).",
		},
		"complete, with event sources that do nothing": {
			status.Report{Topics: []status.Topic{
				fedBy(topicOf("orders", done()), status.EventSource{State: "Disabled", LastResult: "OK", Live: true}),
				fedBy(topicOf("users", done()), status.EventSource{State: "Enabled", LastResult: "PROBLEM: Function call failed", Live: true}),
			}},
			status.No, "B holds everything that A had at 12:03:07.412, but 2 event sources are not at work (orders: Disabled; …).",
		},
		"behind, and the event source is gone": {
			status.Report{Topics: []status.Topic{fedBy(topicOf("orders", late(2, time.Second)), status.EventSource{State: status.Missing, Live: true})}},
			status.No, "B is 2 records behind A in 1 of 1 partition; the oldest of them is 1s old; 1 event source is not at work (orders: missing).",
		},
		"complete, and the event source is being changed": {
			status.Report{Topics: []status.Topic{fedBy(topicOf("orders", done()), status.EventSource{State: "Updating", LastResult: "No records processed", Live: true})}},
			status.Yes, "B holds everything that A had at 12:03:07.412.",
		},
		"complete, and nobody runs the event source that the state remembers": {
			status.Report{Topics: []status.Topic{fedBy(topicOf("orders", done()), status.EventSource{State: "Disabled"})}},
			status.Yes, "B holds everything that A had at 12:03:07.412.",
		},
		"complete, and Lambda does not answer": {
			status.Report{Topics: []status.Topic{topicOf("orders", done())}, EventSourcesError: "not authorized"},
			status.Yes, "B holds everything that A had at 12:03:07.412; nothing is known of the event sources (not authorized).",
		},
		"complete, with an empty partition that is new": {
			status.Report{Topics: []status.Topic{topicOf("orders", done(), status.Partition{})}},
			status.Yes, "B holds everything that A had at 12:03:07.412; 1 of 2 partitions not prepared yet.",
		},
		"source out of reach": {
			status.Report{Source: status.Cluster{Error: dark}, Topics: []status.Topic{topicOf("orders", func() status.Partition { p := done(); p.Behind = -1; return p }())}},
			status.Unknown, "B cannot be judged: A does not answer (" + dark + "); the newest record it has is 3s old.",
		},
		"both out of reach": {
			status.Report{Source: status.Cluster{Error: dark}, Target: status.Cluster{Error: "also"}},
			status.Unknown, "B cannot be judged: A does not answer (" + dark + "); B does not answer (also).",
		},
		"target out of reach": {
			status.Report{Target: status.Cluster{Error: "no answer"}, Topics: []status.Topic{topicOf("orders", done())}},
			status.Unknown, "B held everything that A had at 12:03:07.412, by what is stored; B does not answer (no answer).",
		},
		"target out of reach, and behind": {
			status.Report{Target: status.Cluster{Error: "no answer"}, Topics: []status.Topic{topicOf("orders", late(7, 5*time.Minute))}},
			status.Unknown, "B is 7 records behind A in 1 of 1 partition, by what is stored; the oldest of them is 5m old; B does not answer (no answer).",
		},
		"a long name": {
			status.Report{Topics: []status.Topic{topicOf(long, refused), topicOf(long+".dlq", done())}},
			status.No, "B holds everything that A had at 12:03:07.412, but copying fails (com.example.orders.….orders.dead.letters-0: produce A.com.example.orders.….orders.dead.letters-0: refused).",
		},
		"a partition without a leader": {
			status.Report{Topics: []status.Topic{topicOf("orders", done(), unknown)}},
			status.Unknown, "B cannot be judged in 1 of 2 partitions (orders-1: A does not say where it ends: LEADER_NOT_AVAILABLE).",
		},
		"another source": {
			status.Report{Source: status.Cluster{ID: "x", Stored: "y"}, Topics: []status.Topic{topicOf("orders", done())}},
			status.Unknown, "B cannot be judged: A is another cluster than the one that the state describes (x, not y).",
		},
		"another target": {
			status.Report{Target: status.Cluster{ID: "x", Stored: "y"}, Topics: []status.Topic{topicOf("orders", done())}},
			status.Unknown, "B cannot be judged: B is another cluster than the one that the state describes (x, not y).",
		},
		"nothing to copy": {
			status.Report{Topics: []status.Topic{heartbeats}},
			status.No, "B is not fed: A has no topic that A->B copies.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.report
			r.Flow, r.At, r.Source.Alias, r.Target.Alias = "A->B", noon, "A", "B"
			answer, sentence := status.Judge(r)
			if answer != c.answer || sentence != c.want {
				t.Errorf("got  %s: %s\nwant %s: %s", answer, sentence, c.answer, c.want)
			}
		})
	}
}

func TestNumbersAndAgesAreShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -999: "-999", 1e12: "1,000,000,000,000"} {
		if got := status.Count(n); got != want {
			t.Errorf("Count(%d): got %s want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 450 * time.Millisecond: "0.4s", 3900 * time.Millisecond: "3s",
		252 * time.Second: "4m12s", 123 * time.Minute: "2h3m", 2 * time.Hour: "2h", 5 * time.Minute: "5m", 26 * time.Hour: "1d", 20_000 * 24 * time.Hour: "20,000d",
	} {
		if got := status.Age(d); got != want {
			t.Errorf("Age(%s): got %s want %s", d, got, want)
		}
	}
}
