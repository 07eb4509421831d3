// Package kafkatest gives a test real Kafka clusters. Where and whether such
// tests run: package realtest.
package kafkatest

import (
	"os"
	"strings"
	"testing"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/realtest"
)

// Find returns the installation, for Kafka's own tools and MirrorMaker 2.
func Find(t testing.TB) kafka.Installation {
	t.Helper()
	realtest.Need(t)
	in, err := kafka.Find(t.Context(), "")
	if err != nil {
		realtest.Missing(t, err)
	}
	return in
}

// Start starts a cluster for the test and ends it with the test. After a
// failure, the warnings and errors of its brokers are in the test's log.
func Start(t testing.TB, options kafka.Options) *kafka.Cluster {
	t.Helper()
	in := Find(t)
	c, err := in.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, node := range c.Nodes() {
				logWarnings(t, c.LogFile(node))
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// logWarnings puts the last warnings and errors of a broker into the test's log.
func logWarnings(t testing.TB, path string) {
	const most = 20
	log, err := os.ReadFile(path)
	if err != nil {
		t.Log(err)
		return
	}
	var lines []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "] WARN ") || strings.Contains(line, "] ERROR ") {
			lines = append(lines, line)
		}
	}
	t.Logf("%s: %d warnings and errors, the last:\n%s", path, len(lines), strings.Join(lines[max(0, len(lines)-most):], ""))
}
