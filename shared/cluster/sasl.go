package cluster

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"mirrorless/shared/config"
)

// Credentials are those of an AWS role, which AWS_MSK_IAM signs with.
type Credentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
}

// WithCredentials is an option of [Dial] and [Connect]: fn gives the credentials
// for AWS_MSK_IAM, each time a connection is opened. Clusters with another
// mechanism take no notice.
func WithCredentials(fn func(context.Context) (Credentials, error)) kgo.Opt {
	// An Opt can only be made by kgo; this one is taken out before kgo sees it.
	return credentialsOpt{kgo.WithHooks(), fn}
}

type credentialsOpt struct {
	kgo.Opt
	fn func(context.Context) (Credentials, error)
}

// sasl returns the mechanism, nil for a protocol without one.
func (p *props) sasl(credentials func(context.Context) (Credentials, error)) sasl.Mechanism {
	if !strings.HasPrefix(p.protocol(), "SASL_") {
		return nil
	}
	const key = "sasl.mechanism"
	switch mechanism := p.text(key, "GSSAPI"); mechanism {
	case "PLAIN":
		user, password := p.login()
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		user, password := p.login()
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		user, password := p.login()
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "AWS_MSK_IAM":
		if p.protocol() != "SASL_SSL" {
			p.fail("security.protocol", "AWS_MSK_IAM needs TLS: set SASL_SSL")
		}
		if credentials == nil {
			p.fail(key, "AWS_MSK_IAM needs credentials of AWS, and there are none here")
			return nil
		}
		return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
			c, err := credentials(ctx)
			if err != nil {
				return aws.Auth{}, &credentialsError{err}
			}
			return aws.Auth{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken, UserAgent: "mirrorless"}, nil
		})
	case "OAUTHBEARER":
		return p.oauth()
	default:
		p.fail(key, "%s is not supported: set PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM", mechanism)
		return nil
	}
}

// credentialsError is that of credentials of AWS that could not be got; no
// broker was asked.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return "get credentials of AWS: " + e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

// watched tells connections when the broker has accepted the mechanism and the
// login begins.
type watched struct {
	sasl.Mechanism
	*connections
}

func (w watched) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	w.reach(host, loggingIn)
	return w.Mechanism.Authenticate(ctx, host)
}

// login reads user name and password from the JAAS line.
func (p *props) login() (user, password string) {
	const key = "sasl.jaas.config"
	value, ok := p.values[key]
	if !ok {
		p.fail(key, "missing: %s needs credentials", p.values["sasl.mechanism"])
		return "", ""
	}
	jaas, err := config.ParseJAAS(value)
	if err != nil {
		p.fail(key, "%s", strings.TrimPrefix(err.Error(), "parse sasl.jaas.config: "))
		return "", ""
	}
	for _, option := range []string{"username", "password"} {
		if _, ok := jaas.Options[option]; !ok {
			p.fail(key, "the option %s is missing", option)
		}
	}
	return jaas.Options["username"], jaas.Options["password"]
}
