package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"mirrorless/shared/config"
	"mirrorless/shared/mapping"
)

func TestFunctionsInProcessesOfTheirOwnCanMakeTheirMappings(t *testing.T) {
	const jaas = `A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";`
	scram := strings.ReplaceAll(jaas, "plain.Plain", "scram.Scram")
	for name, c := range map[string]struct {
		lines  []string
		secret string
	}{
		"without a login":      {[]string{"A.security.protocol = PLAINTEXT"}, ""},
		"over TLS":             {[]string{"A.security.protocol = SSL"}, noSecret},
		"with a certificate":   {[]string{"A.security.protocol = SSL", "A.ssl.keystore.location = k.p12"}, noSecret},
		"with PLAIN":           {[]string{"A.security.protocol = SASL_SSL", "A.sasl.mechanism = PLAIN", jaas}, noSecret},
		"with SCRAM":           {[]string{"A.security.protocol = SASL_SSL", "A.sasl.mechanism = SCRAM-SHA-256", scram}, noSecret},
		"with SCRAM, on MSK":   {[]string{"A.security.protocol = SASL_SSL", "A.sasl.mechanism = SCRAM-SHA-512", scram, "A.mirrorless.msk.arn = arn:aws:kafka:us-east-1:1:cluster/a/1-2"}, noSecret},
		"with a secret's name": {[]string{"A.security.protocol = SASL_SSL", "A.sasl.mechanism = PLAIN", jaas, "A.mirrorless.secret.arn = arn:aws:secretsmanager:us-east-1:1:secret:a"}, "arn:aws:secretsmanager:us-east-1:1:secret:a"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "mm2.properties")
			text := "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n" + strings.Join(c.lines, "\n")
			path, err := deployedFile(config.Parse(file, []byte(text), config.Sources{}), writeFile(t, file, text), dir)
			if err != nil {
				t.Fatal(err)
			}
			told, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(told), text) {
				t.Errorf("got a file that does not begin with the one that was given:\n%s", told)
			}
			read := config.Parse(path, told, config.Sources{})
			if err := read.Err(); err != nil {
				t.Fatal(err)
			}
			a, _ := read.Cluster("A")
			if a.MSK.SecretARN != c.secret {
				t.Errorf("got secret %q, want %q", a.MSK.SecretARN, c.secret)
			}
			if _, err := mapping.New(lambda.New(lambda.Options{}), mapping.Options{Function: "f", Cluster: a}); err != nil {
				t.Errorf("the mappings cannot be made: %v", err)
			}
		})
	}
}

// writeFile writes a file, and returns its path.
func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
