// Package samtest gives a test AWS's SAM CLI, with the translator of SAM templates
// and cfn-lint, in a Python of its own. Where and whether such tests run: package
// realtest.
package samtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"mirrorless/localstack/cache"
	"mirrorless/localstack/realtest"
)

// Find returns the folder of sam and of the Python that has its libraries, and
// installs them if need be, as "make template" does.
func Find(t testing.TB) (bin string) {
	t.Helper()
	realtest.Need(t)
	for _, tool := range []string{"python3", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			realtest.Missing(t, fmt.Errorf("the SAM CLI needs Python 3, venv and make (Debian: apt-get install python3-venv make): %w", err))
		}
	}
	root, err := cache.Root()
	if err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "make", "--silent", ".cache/template/.complete")
	install.Dir = filepath.Dir(root)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install the SAM CLI: %v\n%s", err, out)
	}
	return filepath.Join(root, "template", "bin")
}

// Env is the environment of a command that uses them: it reports nothing to AWS,
// needs no account, and asks an emulator more often than AWS how a deployment is.
func Env(bin string) []string {
	return append(os.Environ(),
		"PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"SAM_CLI_TELEMETRY=0", "SAM_CLI_POLL_DELAY=0.5", "AWS_EC2_METADATA_DISABLED=true",
	)
}
