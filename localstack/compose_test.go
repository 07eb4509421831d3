// Package localstack_test checks compose.yaml, which is for those with Docker.
package localstack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/samtest"
)

// faults are what .ci/compose.py finds in a file.
func faults(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(samtest.Find(t), "python"), "../.ci/compose.py", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if len(out) == 0 && err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestTheComposeFileFollowsTheSchemaAndStaysOnThisMachine(t *testing.T) {
	if got := faults(t, "compose.yaml"); got != "" {
		t.Errorf("compose.yaml:\n%s", got)
	}
}

// A check that finds nothing may be one that looks nowhere.
func TestFaultsOfAComposeFileAreFound(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for want, replace := range map[string][2]string{
		"services.localstack: port 4566:4566 is open to other machines": {`"127.0.0.1:4566:4566"`, `"4566:4566"`},
		"services.localstack.healthcheck":                               {"retries: 24", "retry: 24"},
		"services.localstack: its network is host":                      {"networks: [mirrorless]", "network_mode: host"},
	} {
		spoilt := strings.Replace(string(text), replace[0], replace[1], 1)
		if spoilt == string(text) {
			t.Fatalf("compose.yaml has no %s", replace[0])
		}
		path := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(path, []byte(spoilt), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := faults(t, path); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is written twice has to be the same: the version of Kafka that the tests
// run, and the address at which deployed functions find LocalStack.
func TestTheComposeFileAndItsGuideAgree(t *testing.T) {
	guide, err := os.ReadFile("../docs/localstack.md")
	if err != nil {
		t.Fatal(err)
	}
	compose, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, both := range []string{"kafka-a:9092", "kafka-b:9092", "127.0.0.1:19092", "127.0.0.1:19192", "EndpointUrl=http://localhost.localstack.cloud:4566", "LOCALSTACK_AUTH_TOKEN"} {
		if !strings.Contains(string(guide), both) || !strings.Contains(string(compose), both) {
			t.Errorf("want %s in both docs/localstack.md and compose.yaml", both)
		}
	}
	if want := "apache/kafka:" + kafka.Version; !strings.Contains(string(compose), want) {
		t.Errorf("want %s in compose.yaml", want)
	}
}
