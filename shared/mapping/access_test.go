package mapping_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/mapping"
	"mirrorless/shared/topics"
)

const (
	secret  = "A.mirrorless.secret.arn = arn:aws:secretsmanager:us-east-1:1:secret:a\n"
	network = "A.mirrorless.subnets = subnet-1\nA.mirrorless.security.groups = sg-1\n"
	arn     = "A.mirrorless.msk.arn = arn:aws:kafka:us-east-1:1:cluster/a/1\n"
	tls     = "A.security.protocol = SSL\n"
	client  = "A.ssl.keystore.location = client.p12\nA.ssl.keystore.password = p\n"
)

func sasl(mechanism string) string {
	s := "A.security.protocol = SASL_SSL\nA.sasl.mechanism = " + mechanism + "\n"
	module := map[string]string{"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}[mechanism]
	if module == "" {
		return s
	}
	return s + fmt.Sprintf("A.sasl.jaas.config = org.apache.kafka.common.security.%sLoginModule required username=\"u\" password=\"p\";\n", module)
}

func TestLambdaLogsInAsTheConsumersDo(t *testing.T) {
	const inside = " VPC_SUBNET=subnet:subnet-1 VPC_SECURITY_GROUP=security_group:sg-1"
	const id = "=arn:aws:secretsmanager:us-east-1:1:secret:a"
	for _, test := range []struct {
		name, lines, want string
	}{
		{name: "plaintext in a VPC", lines: network, want: inside},
		{name: "TLS in a VPC", lines: tls + network, want: inside},
		{name: "TLS with a private authority", lines: tls + network + "A.mirrorless.ca.arn = arn:aws:secretsmanager:us-east-1:1:secret:ca\n", want: "SERVER_ROOT_CA_CERTIFICATE=arn:aws:secretsmanager:us-east-1:1:secret:ca" + inside},
		{name: "certificate", lines: tls + client + secret + network, want: "CLIENT_CERTIFICATE_TLS_AUTH" + id + inside},
		{name: "certificate in the secret only", lines: tls + secret, want: "CLIENT_CERTIFICATE_TLS_AUTH" + id},
		{name: "PLAIN over the internet", lines: sasl("PLAIN") + secret, want: "BASIC_AUTH" + id},
		{name: "SCRAM-SHA-256", lines: sasl("SCRAM-SHA-256") + secret + network, want: "SASL_SCRAM_256_AUTH" + id + inside},
		{name: "SCRAM-SHA-512", lines: sasl("SCRAM-SHA-512") + secret + network, want: "SASL_SCRAM_512_AUTH" + id + inside},
		{name: "IAM without an ARN", lines: sasl("AWS_MSK_IAM") + network, want: "IAM_AUTH" + inside},
		{name: "MSK with IAM", lines: sasl("AWS_MSK_IAM") + arn, want: ""},
		{name: "MSK with SCRAM-SHA-512", lines: sasl("SCRAM-SHA-512") + arn + secret, want: "SASL_SCRAM_512_AUTH" + id},
		{name: "MSK with a certificate", lines: tls + client + arn + secret, want: "CLIENT_CERTIFICATE_TLS_AUTH" + id},
		{name: "MSK without a login", lines: tls + arn, want: ""},
		{name: "MSK's network is its own", lines: sasl("AWS_MSK_IAM") + arn + network, want: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := lambdaapi.New(lambdaapi.Options{})
			s := sourcesOf(t, api, test.lines)
			made := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders")))
			var got []string
			for _, a := range get(t, api, made.ID).SourceAccessConfigurations {
				part := string(a.Type)
				if a.URI != nil {
					part += "=" + *a.URI
				}
				got = append(got, part)
			}
			if diff := cmp.Diff(strings.TrimSpace(test.want), strings.Join(got, " ")); diff != "" {
				t.Errorf("access differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsMissingIsNamedByItsKey(t *testing.T) {
	for _, test := range []struct {
		name, lines string
		want        []string
	}{
		{"nothing at all", "", []string{"A.mirrorless.subnets", "A.mirrorless.security.groups", "A.mirrorless.msk.arn"}},
		{"TLS alone", tls, []string{"A.mirrorless.subnets"}},
		{"subnets alone", "A.mirrorless.subnets = subnet-1\n", []string{"set A.mirrorless.security.groups"}},
		{"security groups alone", "A.mirrorless.security.groups = sg-1\n", []string{"set A.mirrorless.subnets"}},
		{"PLAIN without a secret", sasl("PLAIN") + network, []string{"set A.mirrorless.secret.arn"}},
		{"SCRAM without a secret on MSK", sasl("SCRAM-SHA-512") + arn, []string{"set A.mirrorless.secret.arn"}},
		{"a certificate without a secret", tls + client + network, []string{"set A.mirrorless.secret.arn"}},
		{"two things", sasl("PLAIN") + "A.mirrorless.subnets = subnet-1\n", []string{"A.mirrorless.secret.arn", "A.mirrorless.security.groups"}},
		{"PLAIN on MSK", sasl("PLAIN") + arn + secret, []string{"MSK has no PLAIN", "A.sasl.mechanism"}},
		{"a login in the clear", strings.Replace(sasl("PLAIN"), "SASL_SSL", "SASL_PLAINTEXT", 1) + secret + network, []string{"A.security.protocol = SASL_SSL"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := mapping.New(clientOf(lambdaapi.New(lambdaapi.Options{})), mapping.Options{Function: "mirror", Cluster: clusterOf(t, test.lines)})
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to name %s", err, want)
				}
			}
			if strings.Contains(err.Error(), "arn:") {
				t.Errorf("got %v, which quotes a value", err)
			}
		})
	}
	if _, err := mapping.New(nil, mapping.Options{Cluster: clusterOf(t, mskFile)}); err == nil {
		t.Error("got no error without a function")
	}
}

func TestTenServersAreEnough(t *testing.T) {
	a := clusterOf(t, network)
	a.BootstrapServers = nil
	for i := range 12 {
		a.BootstrapServers = append(a.BootstrapServers, fmt.Sprintf("a%02d:9092", i))
	}
	api := lambdaapi.New(lambdaapi.Options{})
	s := sourcesOf(t, api, network, func(o *mapping.Options) { o.Cluster = a })
	made := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders")))
	if got := get(t, api, made.ID).SelfManagedEventSource.Endpoints["KAFKA_BOOTSTRAP_SERVERS"]; len(got) != 10 {
		t.Errorf("got %d servers, want 10", len(got))
	}
}
