// Package status answers the questions that are asked of a flow: is B complete,
// how many records is it behind, how old is the newest record it has, what was
// left out, where do the groups stand, what went wrong last.
//
//	report, err := status.Gather(ctx, status.Options{Settings: settings, Store: store, Source: a, Target: b})
//	fmt.Println(report.Sentence) // B holds everything that A had at 12:03:07.412.
//
// It looks at both clusters and at the flow's state, changes nothing, and does
// with what it can reach: what stays unknown is -1, and says why. A running
// process serves its reports by [Handler]; [Ask] gets them.
//
// It does not compare records: that is verify's work. Complete means that every
// offset of A is behind a position that was stored after B had acknowledged it,
// and that B's partitions are as long as the positions say.
package status

import (
	"slices"
	"strings"
	"time"

	"mirrorless/shared/flow"
)

// Answer is what a report says to "is B complete?".
type Answer string

// The answers. No stands for records that are missing, or may be; Unknown for a
// cluster that did not answer, whichever of the two: what is stored says where B
// was, not whether it is still there, nor what it got since.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Report is the status of one flow. Offsets and counts that are not known are
// -1, times are left out. It holds nothing secret.
type Report struct {
	Flow string `json:"flow"` // A->B
	// Sentence answers "is B complete?", and Answer does so for programs. Long
	// names are shortened in it as [Name] does.
	Sentence string `json:"sentence"`
	Answer   Answer `json:"answer"`
	// At is when A was asked where its partitions end: whatever was acknowledged
	// there before is counted.
	At time.Time `json:"at"`
	// Running says that the report is of the process that copies, so that
	// LastError is known.
	Running bool `json:"running"`
	// Functions holds what the scheduled functions failed with last, by name,
	// as far as they have not succeeded since.
	Functions map[string]Failure `json:"functions,omitempty"`
	Source    Cluster            `json:"source"`
	Target    Cluster            `json:"target"`
	// Topics are those that the flow copies, by name.
	Topics []Topic `json:"topics"`
	// EventSourcesError is why whoever runs the event sources does not answer.
	EventSourcesError string `json:"eventSourcesError,omitempty"`

	Holes []Hole `json:"holes"`
	// Twice are ranges of B's offsets whose records are copies of what was there.
	Twice  []Hole  `json:"twice"`
	Groups []Group `json:"groups"`
}

// Cluster is one side of a flow.
type Cluster struct {
	Alias string `json:"alias"`
	// ID is the cluster id that the cluster gave now, Stored the one that the
	// flow was begun with; empty where unknown.
	ID     string `json:"id,omitempty"`
	Stored string `json:"stored,omitempty"`
	// Error is why the cluster does not answer.
	Error string `json:"error,omitempty"`
}

// replaced reports a cluster that is another one than the state describes.
func (c Cluster) replaced() bool { return c.ID != "" && c.Stored != "" && c.ID != c.Stored }

// Topic is a topic of A and its copy.
type Topic struct {
	Topic  string `json:"topic"`
	Remote string `json:"remote"` // its name on B
	// Heartbeats marks a topic that gets a record every second only to be
	// copied. It does not count for the answer, which would never be yes.
	Heartbeats  bool         `json:"heartbeats,omitempty"`
	EventSource *EventSource `json:"eventSource,omitempty"`
	// Note says what is odd about the topic as a whole.
	Note       string      `json:"note,omitempty"`
	LastError  *Failure    `json:"lastError,omitempty"`
	Partitions []Partition `json:"partitions"`
}

// Partition is how far a partition is copied.
type Partition struct {
	Partition int32 `json:"partition"`
	// Prepared says that there is a position: topics writes the first one before
	// anything is copied.
	Prepared bool `json:"prepared"`
	// Position is the next offset of A to be copied, Downstream the end of the
	// copy on B by what is stored.
	Position   int64 `json:"position"`
	Downstream int64 `json:"downstream"`
	// End is the offset after A's last record.
	End int64 `json:"end"`
	// Behind counts the offsets from the first record that is not copied to End,
	// 0 if there is no such record. Offsets that compaction or the end of a
	// transaction has left without a record may be among them.
	Behind int64 `json:"behind"`
	// Oldest is the timestamp of the first record that is not copied.
	Oldest time.Time `json:"oldest,omitzero"`
	// Expired counts offsets that A deleted before they were copied.
	Expired int64 `json:"expired"`
	// Lost counts records that were copied and that B does not have any more.
	Lost int64 `json:"lost"`
	// Copied counts records since the flow began.
	Copied int64 `json:"copied"`
	// Newest is the newest timestamp of the batch that was copied last, and
	// AgeSeconds its age at the time of the report.
	Newest     time.Time `json:"newest,omitzero"`
	AgeSeconds float64   `json:"ageSeconds"`
	// Note says why something is unknown, or odd.
	Note      string   `json:"note,omitempty"`
	LastError *Failure `json:"lastError,omitempty"`
}

// Failure is what went wrong last in copying, and has not gone right since.
type Failure struct {
	Error string    `json:"error"`
	At    time.Time `json:"at,omitzero"`
	// Attempts counts failures in a row; 0 if that is not known.
	Attempts int `json:"attempts,omitempty"`
}

// EventSource is a topic's event source.
type EventSource struct {
	// ID is Lambda's UUID.
	ID    string `json:"id,omitempty"`
	Group string `json:"group"`
	// State is Lambda's word for it, or Missing.
	State string `json:"state"`
	// Live says that whoever runs the event source has told so now; otherwise it is
	// what topics has stored.
	Live bool `json:"live,omitempty"`
	// LastResult is Lambda's LastProcessingResult.
	LastResult string `json:"lastResult,omitempty"`
	// PartialFailures says that ReportBatchItemFailures is confirmed.
	PartialFailures bool      `json:"partialFailures"`
	Updated         time.Time `json:"updated,omitzero"`
}

// Missing is the state of an event source that topics has made, and that is not
// there.
const Missing = "missing"

// trouble says what keeps an event source from its work, empty if nothing does
// or if nobody was asked.
func (s *EventSource) trouble() string {
	switch {
	case s == nil || !s.Live:
		return ""
	case slices.Contains([]string{"Disabling", "Disabled", "Deleting", Missing}, s.State):
		return s.State
	case strings.HasPrefix(s.LastResult, "PROBLEM"):
		return s.LastResult
	}
	return ""
}

// Hole is a range of A's offsets of which something is not on B; in a report's
// Twice, of B's offsets.
type Hole struct {
	Kind      string    `json:"kind"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	From      int64     `json:"from"`
	To        int64     `json:"to"` // the first offset after it
	Records   int64     `json:"records"`
	Seen      time.Time `json:"seen,omitzero"`
}

// Group is what is known of a group's checkpoints.
type Group struct {
	Group string `json:"group"`
	// Written is when the last checkpoint was written. One is written only when
	// the group has moved.
	Written    time.Time        `json:"written,omitzero"`
	Partitions []GroupPartition `json:"partitions"`
}

// GroupPartition is the last checkpoint of a group in one partition.
type GroupPartition struct {
	Topic      string    `json:"topic"` // as B names it
	Partition  int32     `json:"partition"`
	Upstream   int64     `json:"upstream"`
	Downstream int64     `json:"downstream"`
	Written    time.Time `json:"written,omitzero"`
}

// AllPartitions is the partition number, in [Options].Failures, of what concerns
// a topic as a whole.
const AllPartitions int32 = -1

// Failures are what a running event source last failed with.
type Failures map[flow.TopicPartition]Failure
