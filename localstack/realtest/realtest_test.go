package realtest_test

import (
	"errors"
	"testing"

	"mirrorless/localstack/realtest"
)

// recorder notes how a test would have ended, and does not end.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper()              {}
func (r *recorder) Skip(...any)          { r.end = "skip" }
func (r *recorder) Skipf(string, ...any) { r.end = "skip" }
func (r *recorder) Fatal(...any)         { r.end = "fail" }

func TestRealTestsRunOnlyWhereTheyAreAskedFor(t *testing.T) {
	for value, want := range map[string]string{"": "skip", "1": "", "full": ""} {
		t.Setenv("MIRRORLESS_REAL", value)
		r := &recorder{TB: t}
		realtest.Need(r)
		if r.end != want {
			t.Errorf("with %q: got %q, want %q", value, r.end, want)
		}
		if got, want := realtest.Full(), value == "full"; got != want {
			t.Errorf("with %q: got full %t, want %t", value, got, want)
		}
	}
}

func TestMissingToolsFailInCIOnly(t *testing.T) {
	for ci, want := range map[string]string{"": "skip", "false": "skip", "true": "fail"} {
		t.Setenv("CI", ci)
		r := &recorder{TB: t}
		realtest.Missing(r, errors.New("no Java"))
		if r.end != want {
			t.Errorf("with CI=%q: got %q, want %q", ci, r.end, want)
		}
	}
}
