// Package docstest holds the generated pages of docs/ against what generates them.
// The packages that do have
//
//	//go:generate go test -run TestDocumentationIsCurrent -update .
package docstest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the generated page of docs/ anew")

// Current fails unless a page of docs/ is what its package, a folder below shared/,
// says now; with -update it is written first.
func Current(t testing.TB, page, want string) {
	t.Helper()
	path := filepath.Join("../../docs", page)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/%s is not what its package says: run go generate ./shared/...", page)
	}
}
