package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// report collects what is to be said of a file, each thing once.
type report struct {
	file             string
	warnings, errors []Finding
	seen             map[Finding]bool
	silent           []string // keys that do not reach us
	silentLine       int
}

func newReport(file string) *report {
	return &report{file: file, seen: map[Finding]bool{}}
}

func (r *report) err(e entry, format string, args ...any)  { r.add(&r.errors, e, format, args) }
func (r *report) warn(e entry, format string, args ...any) { r.add(&r.warnings, e, format, args) }

func (r *report) add(to *[]Finding, e entry, format string, args []any) {
	f := Finding{File: r.file, Line: e.line, Key: e.key, Message: fmt.Sprintf(format, args...)}
	if !r.seen[f] {
		r.seen[f] = true
		*to = append(*to, f)
	}
}

// ignore notes a key of Connect or of a client that does not reach us.
func (r *report) ignore(e entry) {
	if !slices.Contains(r.silent, e.key) {
		r.silent = append(r.silent, e.key)
	}
	if r.silentLine == 0 || e.line < r.silentLine {
		r.silentLine = e.line
	}
}

// finish returns warnings and errors in file order.
func (r *report) finish() (warnings, errors []Finding) {
	if len(r.silent) > 0 {
		r.warn(entry{line: r.silentLine}, "settings of Connect's workers and clients that do not reach us: %s", strings.Join(r.silent, ", "))
	}
	byLine := func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) }
	slices.SortStableFunc(r.warnings, byLine)
	slices.SortStableFunc(r.errors, byLine)
	return r.warnings, r.errors
}

// quote shows a value in a message, as it was written; never a secret.
func (e entry) quote() string {
	if isSecret(e.key) {
		return "the value (not shown)"
	}
	return fmt.Sprintf("%q", e.raw)
}
