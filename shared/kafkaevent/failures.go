package kafkaevent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Failure names one record in a function's reply as not done. What an event
// source that has ReportBatchItemFailures then sends again is documented as
// those records only; name the first failed record of a partition and every
// later one, which is right also where everything from the first on is sent.
type Failure struct {
	Topic     string
	Partition int32
	Offset    int64
}

// The JSON of a reply. Lambda's names, of the pages on partial batch responses.
type (
	reply struct {
		Failures []item `json:"batchItemFailures"`
	}
	item struct {
		Identifier identifier `json:"itemIdentifier"`
	}
	identifier struct {
		// Partition is "<topic>-<partition>".
		Partition string `json:"partition"`
		Offset    *int64 `json:"offset"`
	}
)

// EncodeFailures returns the reply that names failures. Without any it is the
// reply of success. An event source that lacks ReportBatchItemFailures takes
// every reply for success.
func EncodeFailures(failures []Failure) []byte {
	b := []byte(`{"batchItemFailures":[`)
	for i, f := range failures {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"itemIdentifier":{"partition":"`...)
		b = appendEscaped(b, f.Topic)
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(f.Partition), 10)
		b = append(b, `","offset":`...)
		b = strconv.AppendInt(b, f.Offset, 10)
		b = append(b, `}}`...)
	}
	return append(b, `]}`...)
}

// DecodeFailures reads a function's reply as Lambda does: an empty reply, null,
// an object without batchItemFailures, and null or nothing in it are success. An
// error means that the reply cannot be understood and the whole batch is to be
// sent again; so it is if a failure names a record that was not in the batch,
// which only the caller knows.
func DecodeFailures(b []byte) ([]Failure, error) {
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, nil
	}
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("decode reply: %w", err)
	}
	var failures []Failure
	for i, item := range r.Failures {
		id := item.Identifier
		// The partition's own digits hold no hyphen; the topic may.
		cut := strings.LastIndexByte(id.Partition, '-')
		if cut <= 0 {
			return nil, fmt.Errorf("decode reply: batchItemFailures[%d]: partition %q, want <topic>-<partition>", i, id.Partition)
		}
		n, err := strconv.ParseInt(id.Partition[cut+1:], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("decode reply: batchItemFailures[%d]: partition %q, want <topic>-<partition>", i, id.Partition)
		}
		if id.Offset == nil {
			return nil, fmt.Errorf("decode reply: batchItemFailures[%d]: no offset", i)
		}
		failures = append(failures, Failure{id.Partition[:cut], int32(n), *id.Offset})
	}
	return failures, nil
}
