package function

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"mirrorless/shared/config"
)

func TestClientsLogInToMSKAsTheAccountOfTheMoment(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = a:9098\nB.bootstrap.servers = b:9098\nA->B.enabled = true\nsecurity.protocol = SASL_SSL\nsasl.mechanism = AWS_MSK_IAM\n"), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	key := "AKIDOLD"
	account := aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: key, SecretAccessKey: "s3cret-key", SessionToken: "session"}, nil
	})}
	p := &Parts{Config: c, Settings: c.Enabled()[0], AWS: &account}
	defer p.Close()
	a, b, err := p.both(config.Admin, config.Admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, key = range []string{"AKIDOLD", "AKIDNEW"} {
		for _, client := range []*kgo.Client{a, b} {
			mechanisms, _ := client.OptValue(kgo.SASL).([]sasl.Mechanism)
			if len(mechanisms) != 1 {
				t.Fatalf("got %d mechanisms, want one", len(mechanisms))
			}
			_, token, err := mechanisms[0].Authenticate(t.Context(), "a:9098")
			if err != nil {
				t.Fatal(err)
			}
			if got := string(token); !strings.Contains(got, key+"/") || !strings.Contains(got, `"x-amz-security-token":"session"`) || strings.Contains(got, "s3cret-key") {
				t.Errorf("got token %s, want one of %s that has no secret key", got, key)
			}
		}
	}
}
