package ministack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mirrorless/localstack/ministack"
)

func TestFindSaysInOneLineHowToGetWhatIsMissing(t *testing.T) {
	const oldPython = `#!/bin/sh
exit 1`
	const offline = `#!/bin/sh
[ "$1" = -c ] && exit
echo 'ERROR: no matching distribution' >&2
exit 1`
	tests := map[string]struct{ python, want string }{
		"no Python":     {"", "needs Python 3.10 or newer with pip and venv"},
		"an old Python": {oldPython, "needs Python 3.10 or newer with pip and venv"},
		"a failed load": {offline, "no matching distribution"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if test.python != "" {
				if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(test.python), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			_, err := ministack.Find(t.Context(), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, test.want)
			}
		})
	}
}
