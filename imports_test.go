// Package mirrorless_test holds the rules of the house that no compiler knows:
// which package may import which.
package mirrorless_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) map[string]goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, "mirrorless/")
		for i := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(p.Imports[i], "mirrorless/")
		}
		all[p.ImportPath] = p
	}
}

var (
	words = []string{"shared/flow", "shared/mm2", "shared/config", "shared/kafkaevent", "shared/batch", "shared/offsets", "shared/cost"}
	work  = []string{"shared/topics", "shared/mirror", "shared/heartbeat", "shared/checkpoint", "shared/verify", "shared/status"}
)

// within says whether a package is one of the named ones or below it.
func within(path string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return path == name || strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/")
	})
}

func TestPackagesImportOnlyWhatTheirLayerMay(t *testing.T) {
	const (
		aws    = "github.com/aws"
		lambda = "github.com/aws/aws-lambda-go/lambda"
		franz  = "github.com/twmb/franz-go"
	)
	for path, p := range list(t) {
		forbid := func(why string, names ...string) {
			for _, imported := range p.Imports {
				if within(imported, names...) && imported != path {
					t.Errorf("%s imports %s: %s", path, imported, why)
				}
			}
		}
		ours := []string{"shared/cluster", "shared/fetch", "shared/target", "shared/producer", "shared/mapping", "shared/metrics", "shared/state", "shared/function", "localstack", "cmd"}
		switch {
		case slices.Contains(words, path):
			forbid("words know no network and no system", "net", "net/http", "os", "os/exec", aws, franz)
			forbid("words import words", append(work, ours...)...)
		case slices.Contains(work, path):
			forbid("work packages do not import each other", slices.DeleteFunc(slices.Clone(work), func(s string) bool { return s == path })...)
			forbid("work packages know no AWS and no environment", aws, "os", "shared/function", "shared/mapping", "shared/metrics", "localstack", "cmd", "shared/state/dynamo", "shared/state/embedded")
		}
		if !within(path, "cmd", "localstack", "stories") {
			forbid("only the command line uses the local stack", "localstack")
		}
		if path != "shared/function" && !within(path, "localstack") {
			forbid("only function knows Lambda's runtime", lambda)
		}
		if within(path, "functions") {
			forbid("a function is wiring", append(append([]string{franz, aws}, words...), work...)...)
		}
	}
}

func TestFunctionsLinkNothingThatOnlyTheCommandLineNeeds(t *testing.T) {
	for path, p := range list(t) {
		if !within(path, "functions") {
			continue
		}
		for _, dep := range p.Deps {
			if within(strings.TrimPrefix(dep, "mirrorless/"), "shared/state/embedded", "localstack", "go.etcd.io/bbolt", "github.com/spf13") {
				t.Errorf("%s links %s", path, dep)
			}
		}
	}
}

func TestOnlyFunctionAndTheCommandLineReadTheEnvironment(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "grep", "-nE", `^[^/]*os\.(Getenv|LookupEnv|Environ)\b`, "--", "*.go", ":!*_test.go", ":!*/testdata/*").Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(out)) {
		// The last three are for tests, and for a function's variables: they hand on
		// what whoever starts them has set.
		if !within(line, "shared/function", "cmd", "localstack/realtest", "localstack/samtest", "localstack/invoke") {
			t.Errorf("reads the environment: %s", strings.TrimSpace(line))
		}
	}
}
