package verify

import (
	"fmt"
	"strings"
)

// Kind is what a finding is about; it is also the word for it in reports.
type Kind string

// The kinds of findings. Equal records are no finding.
const (
	// Missing: a record of the source is not on the target, though later ones are.
	Missing Kind = "missing"
	// Duplicated: a record of the source is on the target once more.
	Duplicated Kind = "duplicated"
	// Reordered: a record is on the target among other neighbours.
	Reordered Kind = "reordered"
	// Altered: a record is in its place with another key, value, header or timestamp.
	Altered Kind = "altered"
	// HeaderLost: a record lacks its headers whose value is null, and only these.
	HeaderLost Kind = "header lost"
	// Extra: the target has a record that the source does not have.
	Extra Kind = "extra"
	// Behind: the last records of the source are not on the target yet.
	Behind Kind = "behind"
	// Unprovable: there is nothing left to compare with.
	Unprovable Kind = "unprovable"
)

// Range is a range of offsets, both ends included.
type Range struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// String is "7", or "7 to 9".
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d to %d", r.First, r.Last)
}

// Finding is a difference, of one record or of several in a row.
type Finding struct {
	Kind      Kind  `json:"kind"`
	Partition int32 `json:"partition"`
	Records   int64 `json:"records"`
	// Source and Target are where the records are; nil on the side where they
	// are not. Of duplicated records, Source is where the first copies came from.
	Source *Range `json:"source,omitempty"`
	Target *Range `json:"target,omitempty"`
	// Before is, of missing records, the offset of the target before which they
	// belong, and of extra ones the offset of the source before which they stand.
	Before *int64 `json:"before,omitempty"`
	// Differences are, of altered records and lost headers, those of the first.
	Differences []Difference `json:"differences,omitempty"`
	// Reason is, of unprovable records, why.
	Reason string `json:"reason,omitempty"`
}

// Difference is a part of a record that differs. What it says is never shown,
// only how much it is.
type Difference struct {
	Field string `json:"field"` // key, value, headers or timestamp
	// Source and Target are sizes in bytes, -1 for null; of headers those of all
	// names and values; of a timestamp it is milliseconds since 1970.
	Source int64 `json:"source"`
	Target int64 `json:"target"`
	// SourceHeaders and TargetHeaders count the headers.
	SourceHeaders int32 `json:"sourceHeaders,omitempty"`
	TargetHeaders int32 `json:"targetHeaders,omitempty"`
}

func differences(a, b *entry) []Difference {
	var out []Difference
	d := differ(a, b)
	if d&fieldKey != 0 {
		out = append(out, Difference{Field: "key", Source: int64(a.keySize), Target: int64(b.keySize)})
	}
	if d&fieldValue != 0 {
		out = append(out, Difference{Field: "value", Source: int64(a.valueSize), Target: int64(b.valueSize)})
	}
	if d&fieldHeaders != 0 {
		out = append(out, Difference{
			Field: "headers", Source: int64(a.headersSize), Target: int64(b.headersSize),
			SourceHeaders: a.headerCount, TargetHeaders: b.headerCount,
		})
	}
	if d&fieldTimestamp != 0 {
		out = append(out, Difference{Field: "timestamp", Source: a.millis(), Target: b.millis()})
	}
	return out
}

// Counts are numbers of records. Each data record that was read is counted once
// a side: in Source and Target, and in what became of it.
type Counts struct {
	Source int64 `json:"source"` // read from the source
	Target int64 `json:"target"` // read from the target
	Equal  int64 `json:"equal"`  // on both sides, in order

	Missing          int64 `json:"missing"`
	Duplicated       int64 `json:"duplicated"`
	Reordered        int64 `json:"reordered"`
	Altered          int64 `json:"altered"`
	HeaderLost       int64 `json:"headerLost"`
	Extra            int64 `json:"extra"`
	Behind           int64 `json:"behind"`
	UnprovableSource int64 `json:"unprovableSource"` // records of the source
	UnprovableTarget int64 `json:"unprovableTarget"` // records of the target
}

func (c *Counts) add(d Counts) {
	c.Source += d.Source
	c.Target += d.Target
	c.Equal += d.Equal
	c.Missing += d.Missing
	c.Duplicated += d.Duplicated
	c.Reordered += d.Reordered
	c.Altered += d.Altered
	c.HeaderLost += d.HeaderLost
	c.Extra += d.Extra
	c.Behind += d.Behind
	c.UnprovableSource += d.UnprovableSource
	c.UnprovableTarget += d.UnprovableTarget
}

// Different counts the records that are not as they should be; behind and
// unprovable ones are not among them.
func (c Counts) Different() int64 {
	return c.Missing + c.Duplicated + c.Reordered + c.Altered + c.HeaderLost + c.Extra
}

// String lists what is not equal, such as "missing 1, behind by 20", and is
// empty where all is.
func (c Counts) String() string {
	var parts []string
	for _, p := range []struct {
		what string
		n    int64
	}{
		{"missing", c.Missing},
		{"duplicated", c.Duplicated},
		{"reordered", c.Reordered},
		{"altered", c.Altered},
		{"header lost", c.HeaderLost},
		{"extra", c.Extra},
		{"behind by", c.Behind},
		{"unprovable", c.UnprovableSource + c.UnprovableTarget},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", p.what, p.n))
		}
	}
	return strings.Join(parts, ", ")
}

// balanced reports whether every record that was read is accounted for. It
// guards against a comparison that calls equal what it has not seen.
func (c Counts) balanced() bool {
	both := c.Equal + c.Altered + c.HeaderLost + c.Reordered
	return c.Source == both+c.Missing+c.Behind+c.UnprovableSource &&
		c.Target == both+c.Duplicated+c.Extra+c.UnprovableTarget
}

// Verdict is what the comparison of a topic, or of all, comes to.
type Verdict string

// The verdicts, from good to bad. The worst partition makes that of a topic.
const (
	// VerdictEqual: each record of the source is on the target, once, in order,
	// and nothing else is.
	VerdictEqual Verdict = "equal"
	// VerdictSampled: each record that was looked at is as it should be.
	VerdictSampled Verdict = "equal in the sample"
	// VerdictUnprovable: what both sides still have is equal.
	VerdictUnprovable Verdict = "unprovable"
	// VerdictBehind: the target is equal but for the last records.
	VerdictBehind Verdict = "behind"
	// VerdictDifferent: there are differences.
	VerdictDifferent Verdict = "different"
	// VerdictFailed: the comparison was not finished.
	VerdictFailed Verdict = "failed"
)

func (v Verdict) rank() int {
	switch v {
	case VerdictEqual:
		return 0
	case VerdictSampled:
		return 1
	case VerdictUnprovable:
		return 2
	case VerdictBehind:
		return 3
	case VerdictDifferent:
		return 4
	default:
		return 5
	}
}

// Worst returns the worse of v and w.
func (v Verdict) Worst(w Verdict) Verdict {
	if w.rank() > v.rank() {
		return w
	}
	return v
}

// Partition is the comparison of a partition.
type Partition struct {
	Partition int32   `json:"partition"`
	Verdict   Verdict `json:"verdict"`
	// The offsets that were compared: log start, and log end at the start of the
	// comparison; read with read_committed, the last stable offset.
	SourceStart int64  `json:"sourceStart"`
	SourceEnd   int64  `json:"sourceEnd"`
	TargetStart int64  `json:"targetStart"`
	TargetEnd   int64  `json:"targetEnd"`
	Counts      Counts `json:"counts"`
	// Known is how many of the equal records an earlier report proves.
	Known int64 `json:"known,omitempty"`
	// Ranges are, in a report that is to be kept, the equal records before the
	// first difference.
	Ranges []Proven `json:"ranges,omitempty"`
	// Sampled are, in a sample, the ranges that were compared; none means all.
	Sampled []Sampled `json:"sampled,omitempty"`
	// Error is why the comparison was not finished.
	Error string `json:"error,omitempty"`
}

// Method is how a topic is compared.
type Method string

// The methods.
const (
	// ByRecord: every record, in order. Counts are numbers of records.
	ByRecord Method = "by record"
	// ByKey: the last record of each key, where one side or both are compacted.
	// Counts are numbers of keys.
	ByKey Method = "by key"
)

// Topic is the comparison of a topic.
type Topic struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Compared Method `json:"compared"`
	// SourceID and TargetID are the topic ids, in hexadecimal digits.
	SourceID   string      `json:"sourceId,omitempty"`
	TargetID   string      `json:"targetId,omitempty"`
	Verdict    Verdict     `json:"verdict"`
	Counts     Counts      `json:"counts"`
	Partitions []Partition `json:"partitions"`
	// Findings are the first ones, by partition and place; Omitted counts the
	// others, which are in Counts like all.
	Findings []Finding `json:"findings"`
	Omitted  int64     `json:"omitted"`
	// Notes are sentences about what was not compared, and how to read the rest.
	Notes []string `json:"notes,omitempty"`
	// Error is why the topic could not be compared at all.
	Error string `json:"error,omitempty"`
}

// Report is the result of Run.
type Report struct {
	Verdict Verdict `json:"verdict"`
	Counts  Counts  `json:"counts"`
	Topics  []Topic `json:"topics"`
	// Sample is which parts were compared; without it everything was.
	Sample *Sample `json:"sample,omitempty"`
	// Kept is in a report that is to be kept.
	Kept *Kept `json:"kept,omitempty"`
}

// verdict judges the counts of a partition that was read to its end.
func (o *Options) verdict(c Counts) Verdict {
	different := c.Different()
	if o.AllowLostHeaders {
		different -= c.HeaderLost
	}
	switch {
	case !c.balanced():
		return VerdictFailed
	case different > 0:
		return VerdictDifferent
	case c.Behind > 0:
		return VerdictBehind
	case c.UnprovableSource+c.UnprovableTarget > 0 && !o.AllowUnprovable:
		return VerdictUnprovable
	default:
		return VerdictEqual
	}
}
