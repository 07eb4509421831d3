// Package realtest decides whether tests run that need more than Go: real
// Kafka brokers, a DynamoDB emulator.
//
// They run where MIRRORLESS_REAL is set, which "make test" does when it finds
// the tools: to 1 for the usual length, to "full" for the long form of the
// stories that have one. Without it they are skipped, so that "go test ./..."
// needs only Go. With it, a missing tool skips the test with one line that says
// how to get it, but fails the test where CI=true.
//
// Tests use it through kafkatest and ministacktest, or directly for a tool of
// their own. It is for tests only.
package realtest

import (
	"os"
	"testing"
)

// variable switches the real tests on.
const variable = "MIRRORLESS_REAL"

// Need skips the test unless the real tests are switched on.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("runs with %s=1, as make test sets it", variable)
	}
}

// Missing ends a test whose tools are not there: a failure in CI, else a skip.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	} else {
		t.Skip(err)
	}
}

// Full is true where the long form of the stories is asked for.
func Full() bool { return os.Getenv(variable) == "full" }
