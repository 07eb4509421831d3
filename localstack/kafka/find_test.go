package kafka_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mirrorless/localstack/kafka"
)

func TestFindSaysInOneLineHowToGetWhatIsMissing(t *testing.T) {
	const oldJava = `#!/bin/sh
echo 'openjdk version "11.0.25" 2024-10-15' >&2`
	const newJava = `#!/bin/sh
echo 'openjdk version "21.0.5" 2024-10-15 LTS' >&2`
	const brokenMaven = `#!/bin/sh
echo '[ERROR] Could not transfer artifact'
exit 1`
	tests := map[string]struct {
		programs map[string]string
		want     []string
	}{
		"no Java":       {nil, []string{"needs Java 17 or newer and Maven", "apt-get install", `"java"`}},
		"an old Java":   {map[string]string{"java": oldJava}, []string{"needs Java 17 or newer and Maven", "is version 11"}},
		"no Maven":      {map[string]string{"java": newJava}, []string{"needs Java 17 or newer and Maven", `"mvn"`}},
		"a failed load": {map[string]string{"java": newJava, "mvn": brokenMaven}, []string{"download Kafka 4.3.1 with Maven", "Could not transfer artifact"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for program, script := range test.programs {
				if err := os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			_, err := kafka.Find(t.Context(), t.TempDir())
			if err == nil {
				t.Fatal("got an installation, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %q, want one line with %q", err, want)
				}
			}
		})
	}
}
