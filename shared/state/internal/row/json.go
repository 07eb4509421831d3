package row

import (
	"encoding/json"
	"time"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

type flowJSON struct {
	Schema          int    `json:"schema"`
	Version         int64  `json:"version"`
	Source          string `json:"source"`
	Target          string `json:"target"`
	SourceClusterID string `json:"sourceClusterId"`
	TargetClusterID string `json:"targetClusterId"`
	ProducerID      int64  `json:"producerId"`
	Created         int64  `json:"created"`
}

// MarshalFlow writes a flow row.
func MarshalFlow(f state.FlowRow) []byte {
	return marshal(flowJSON{
		Schema, f.Version, f.Flow.Source, f.Flow.Target,
		f.SourceClusterID, f.TargetClusterID, f.ProducerID, Millis(f.Created),
	})
}

// Flow is the inverse of MarshalFlow.
func Flow(data []byte) (state.FlowRow, error) {
	var j flowJSON
	if err := unmarshal(KindFlow, KindFlow, data, &j); err != nil {
		return state.FlowRow{}, err
	}
	return state.FlowRow{
		Version:         j.Version,
		Flow:            flow.Flow{Source: j.Source, Target: j.Target},
		SourceClusterID: j.SourceClusterID,
		TargetClusterID: j.TargetClusterID,
		ProducerID:      j.ProducerID,
		Created:         Time(j.Created),
	}, nil
}

type eventSourceJSON struct {
	Schema          int    `json:"schema"`
	Version         int64  `json:"version"`
	Topic           string `json:"topic"`
	ID              string `json:"id"`
	Group           string `json:"group"`
	State           string `json:"state"`
	PartialFailures bool   `json:"partialFailures"`
	BatchSize       int32  `json:"batchSize"`
	WindowMillis    int64  `json:"window"`
	Partitions      int32  `json:"partitions"`
	LastResult      string `json:"lastResult"`
	Updated         int64  `json:"updated"`
}

// MarshalEventSource writes an event source row.
func MarshalEventSource(s state.EventSource) []byte {
	return marshal(eventSourceJSON{
		Schema, s.Version, s.Topic, s.ID, s.Group, s.State, s.PartialFailures,
		s.BatchSize, s.Window.Milliseconds(), s.Partitions, s.LastResult, Millis(s.Updated),
	})
}

// EventSource is the inverse of MarshalEventSource.
func EventSource(key string, data []byte) (state.EventSource, error) {
	var j eventSourceJSON
	if err := unmarshal(KindEventSource, key, data, &j); err != nil {
		return state.EventSource{}, err
	}
	return state.EventSource{
		Version:         j.Version,
		Topic:           j.Topic,
		ID:              j.ID,
		Group:           j.Group,
		State:           j.State,
		PartialFailures: j.PartialFailures,
		BatchSize:       j.BatchSize,
		Window:          time.Duration(j.WindowMillis) * time.Millisecond,
		Partitions:      j.Partitions,
		LastResult:      j.LastResult,
		Updated:         Time(j.Updated),
	}, nil
}

type holeJSON struct {
	Schema    int    `json:"schema"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Kind      string `json:"kind"`
	Records   int64  `json:"records"`
	Seen      int64  `json:"seen"`
}

// MarshalHole writes a hole row.
func MarshalHole(h state.Hole) []byte {
	return marshal(holeJSON{
		Schema, h.Topic, h.Partition, h.From, h.To, h.Kind, h.Records, Millis(h.Seen),
	})
}

// Hole is the inverse of MarshalHole.
func Hole(key string, data []byte) (state.Hole, error) {
	var j holeJSON
	if err := unmarshal(KindHole, key, data, &j); err != nil {
		return state.Hole{}, err
	}
	return state.Hole{
		TopicPartition: flow.TopicPartition{Topic: j.Topic, Partition: j.Partition},
		From:           j.From,
		To:             j.To,
		Kind:           j.Kind,
		Records:        j.Records,
		Seen:           Time(j.Seen),
	}, nil
}

type leaseJSON struct {
	Schema  int    `json:"schema"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Expires int64  `json:"expires"`
	Token   int64  `json:"token"`
}

// MarshalLease writes a lease row. A released lease has no owner and keeps its
// token, so that the next one is higher.
func MarshalLease(l state.Lease) []byte {
	return marshal(leaseJSON{Schema, l.Name, l.Owner, Millis(l.Expires), l.Token})
}

// Lease is the inverse of MarshalLease.
func Lease(key string, data []byte) (state.Lease, error) {
	var j leaseJSON
	if err := unmarshal(KindLease, key, data, &j); err != nil {
		return state.Lease{}, err
	}
	return state.Lease{Name: j.Name, Owner: j.Owner, Expires: Time(j.Expires), Token: j.Token}, nil
}

// CheckJSON refuses the text of a JSON row by its schema alone.
func CheckJSON(kind, key string, data []byte) error {
	var schema struct {
		Schema int `json:"schema"`
	}
	// Only the schema first: a newer row may have other types under known names.
	if err := json.Unmarshal(data, &schema); err != nil {
		return corrupt(kind, key, err)
	}
	return CheckSchema(kind, key, schema.Schema)
}

func unmarshal(kind, key string, data []byte, into any) error {
	if err := CheckJSON(kind, key, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return corrupt(kind, key, err)
	}
	return nil
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // flat structs of strings and numbers always marshal
	}
	return data
}
