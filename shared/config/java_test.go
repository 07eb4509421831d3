package config_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/config"
)

// answers are what the classes of a JVM made of odd inputs: java.util.Properties
// of OpenJDK 17 and JaasContext of kafka-clients 4.3.1.
func answers[T any](t *testing.T, file string) []T {
	t.Helper()
	data, err := os.ReadFile("testdata/java/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []T
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestJAASIsReadAsKafkaReadsIt(t *testing.T) {
	type row struct {
		In, Module, Error string
		Options           map[string]string
	}
	for _, row := range answers[row](t, "jaas.json") {
		got, err := config.ParseJAAS(row.In)
		if (err != nil) != (row.Error != "") {
			t.Errorf("%q: got error %v, Java %q", row.In, err, row.Error)
			continue
		}
		if err == nil && (got.Module != row.Module || !cmp.Equal(got.Options, row.Options)) {
			t.Errorf("%q:\ngot  %s %q\nJava %s %q", row.In, got.Module, got.Options, row.Module, row.Options)
		}
	}
}
