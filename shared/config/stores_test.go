package config_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"mirrorless/shared/config"
)

func TestAStoreThatIsNotHereIsAWarningAtItsKey(t *testing.T) {
	const there, gone = "/etc/there.p12", "/etc/gone.p12"
	reads := map[string]int{}
	sources := config.Sources{ReadFile: func(path string) ([]byte, error) {
		reads[path]++
		if path == there {
			return []byte("0"), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}}
	for name, c := range map[string]struct {
		lines, key string // key is where the warning is, "" where there is none
	}{
		"truststore of a cluster":            {"A.security.protocol = SSL\nA.ssl.truststore.location = " + gone, "A.ssl.truststore.location"},
		"keystore of a cluster":              {"A.security.protocol = SASL_SSL\nA.sasl.mechanism = AWS_MSK_IAM\nA.ssl.keystore.location = " + gone, "A.ssl.keystore.location"},
		"of all clusters":                    {"security.protocol = ssl\nssl.truststore.location = " + gone, "ssl.truststore.location"},
		"of one role":                        {"A.security.protocol = SSL\nA.consumer.ssl.keystore.location = " + gone, "A.consumer.ssl.keystore.location"},
		"of one flow":                        {"A.security.protocol = SSL\nA->B.enabled = true\nA->B.source.consumer.ssl.keystore.location = " + gone, "A->B.source.consumer.ssl.keystore.location"},
		"one that is here":                   {"A.security.protocol = SSL\nA.ssl.truststore.location = " + there, ""},
		"without TLS":                        {"A.ssl.truststore.location = " + gone, ""},
		"beside the certificates themselves": {"A.security.protocol = SSL\nA.ssl.truststore.certificates = x\nA.ssl.truststore.location = " + gone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clear(reads)
			got := config.Parse("f", []byte(two+c.lines), sources)
			if len(got.Errors) > 0 {
				t.Errorf("got errors %v", got.Errors)
			}
			if c.key != "" && !says(got.Warnings, c.key, gone, "cannot be read here (file does not exist)") {
				t.Errorf("want a warning of %s, got %v", c.key, got.Warnings)
			}
			if n := strings.Count(fmt.Sprint(got.Warnings), gone); c.key == "" && n > 0 || n > 1 {
				t.Errorf("said %d times: %v", n, got.Warnings)
			}
			if reads[gone] > 1 {
				t.Errorf("read %d times", reads[gone])
			}
		})
	}
}
