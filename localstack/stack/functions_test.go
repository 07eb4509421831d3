package stack_test

import (
	"testing"

	"mirrorless/localstack/stack"
	"mirrorless/shared/config"
	"mirrorless/shared/function"
)

func TestWhatHindersAllFunctionsIsSaidOnce(t *testing.T) {
	c := config.Parse("f", []byte(`clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
security.protocol = SSL
ssl.truststore.location = /nowhere/t.p12
B.ssl.keystore.location = /nowhere/k.p12
A->B.enabled = true
`), config.Sources{})
	_, err := stack.InProcess(&function.Parts{Config: c, Settings: c.Enabled()[0]})
	const want = "set up client of cluster A: A.ssl.truststore.location: open /nowhere/t.p12: no such file or directory; " +
		"set up client of cluster B: B.ssl.truststore.location: open /nowhere/t.p12: no such file or directory; " +
		"B.ssl.keystore.location: open /nowhere/k.p12: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
