package runtimeapi

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// longestLine is where a line without an end is cut.
const longestLine = 256 << 10

// serialWriter lets one Write through at a time.
type serialWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *serialWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// lineWriter passes on what a process prints, line by line, each with the
// function and the environment in front.
type lineWriter struct {
	w          io.Writer
	metrics    io.Writer // nil where metrics are lines like others
	text, json string    // what goes before a line, or into an object

	mu      sync.Mutex
	partial []byte
}

func newLineWriter(o Options, environment int) *lineWriter {
	return &lineWriter{
		w: o.Logs, metrics: o.Metrics,
		text: fmt.Sprintf("function=%s environment=%d ", o.Name, environment),
		json: fmt.Sprintf(`{"function":%q,"environment":%d`, o.Name, environment),
	}
}

// Write never fails: where the logs go is no business of the function.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		end := bytes.IndexByte(l.partial, '\n')
		next := end + 1
		if end < 0 {
			if len(l.partial) < longestLine {
				return len(p), nil
			}
			end, next = longestLine, longestLine
		}
		l.emit(l.partial[:end])
		l.partial = l.partial[next:]
	}
}

// Flush passes on a last line that has no end.
func (l *lineWriter) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.emit(l.partial)
		l.partial = nil
	}
}

func (l *lineWriter) emit(line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if l.metrics != nil && bytes.HasPrefix(line, []byte(embeddedMetrics)) {
		_, _ = l.metrics.Write(append(bytes.Clone(line), '\n'))
		return
	}
	var out []byte
	if inner, ok := object(line); ok {
		out = append(out, l.json...)
		if len(inner) > 0 {
			out = append(out, ',')
		}
		out = append(append(out, inner...), '}')
	} else {
		out = append(append(out, l.text...), line...)
	}
	_, _ = l.w.Write(append(out, '\n'))
}

// embeddedMetrics is what a line of CloudWatch's embedded metric format begins with
// where its members are sorted.
const embeddedMetrics = `{"_aws":{`

// object returns what is between the braces of a JSON object.
func object(line []byte) ([]byte, bool) {
	line = bytes.TrimSpace(line)
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return nil, false
	}
	return bytes.TrimSpace(line[1 : len(line)-1]), true
}
