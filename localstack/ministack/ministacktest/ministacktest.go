// Package ministacktest gives a test a DynamoDB of its own. Where and whether
// such tests run: package realtest.
package ministacktest

import (
	"testing"

	"mirrorless/localstack/ministack"
	"mirrorless/localstack/realtest"
)

// Start starts MiniStack for the test and ends it with the test.
func Start(t testing.TB) *ministack.Server {
	t.Helper()
	realtest.Need(t)
	if _, err := ministack.Find(t.Context(), ""); err != nil {
		realtest.Missing(t, err)
	}
	s, err := ministack.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
