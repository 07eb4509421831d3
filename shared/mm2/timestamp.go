package mm2

import "fmt"

// NoTimestamp is the timestamp of a record that has none (message format 0).
const NoTimestamp = -1

// TimestampError is returned by [RecordTimestamp] for a timestamp that no record
// may have. MirrorMaker 2's task dies of it.
type TimestampError struct{ Timestamp int64 }

func (e *TimestampError) Error() string {
	return fmt.Sprintf("copy timestamp %d: it is before 1970 and not −1, which brokers refuse", e.Timestamp)
}

// RecordTimestamp is the timestamp of a record's copy: its own, or now where it
// has none. Both are milliseconds since 1970.
func RecordTimestamp(source, now int64) (int64, error) {
	switch {
	case source == NoTimestamp:
		return now, nil
	case source < NoTimestamp:
		return 0, &TimestampError{Timestamp: source}
	}
	return source, nil
}
