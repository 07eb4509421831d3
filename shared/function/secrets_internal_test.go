package function

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/ministack/ministacktest"
)

// account is the AWS of a test, as far as it keeps texts: an http.RoundTripper
// below the real clients.
type account struct {
	mu    sync.Mutex
	texts map[item]string
	// deny is an error code for everything, empty for none.
	deny string
	asks []string
}

func (a *account) sdk(context.Context) (aws.Config, error) {
	return aws.Config{
		Region: "eu-west-1", HTTPClient: &http.Client{Transport: a},
		Credentials:      credentials.NewStaticCredentialsProvider("id", "key", ""),
		RetryMaxAttempts: 1,
	}, nil
}

func (a *account) set(kind Kind, name, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.texts == nil {
		a.texts = map[item]string{}
	}
	a.texts[item{kind, name}] = text
}

func (a *account) refuse(code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deny = code
}

// taken are the names that were asked for since the last time.
func (a *account) taken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asks := a.asks
	a.asks = nil
	return asks
}

func (a *account) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var asked struct {
		Name, SecretID string
		WithDecryption bool
	}
	i := item{Object, strings.TrimPrefix(r.URL.Path, "/")}
	missing := "NoSuchKey"
	target := r.Header.Get("X-Amz-Target")
	if target != "" {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}
	}
	switch {
	case target == "AmazonSSM.GetParameter" && asked.WithDecryption:
		i, missing = item{Parameter, asked.Name}, "ParameterNotFound"
	case target == "secretsmanager.GetSecretValue":
		i, missing = item{Secret, asked.SecretID}, "ResourceNotFoundException"
	case target == "" && r.Method == http.MethodGet:
		bucket, _, _ := strings.Cut(r.URL.Host, ".")
		i.name = bucket + "/" + i.name
	default:
		return nil, fmt.Errorf("%s %s is not to be asked here", r.Method, target)
	}
	a.asks = append(a.asks, i.name)
	text, ok := a.texts[i]
	code := a.deny
	if code == "" && !ok {
		code = missing
	}
	reply := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
	}
	quoted, _ := json.Marshal(text)
	switch {
	case code != "" && i.Kind == Object:
		return reply(http.StatusForbidden, "<Error><Code>"+code+"</Code><Message>no</Message></Error>")
	case code != "":
		return reply(http.StatusBadRequest, `{"__type":"`+code+`","message":"no"}`)
	case i.Kind == Object:
		return reply(http.StatusOK, text)
	case i.Kind == Parameter:
		return reply(http.StatusOK, `{"Parameter":{"Name":"n","Type":"SecureString","Value":`+string(quoted)+`}}`)
	case text == "binary":
		return reply(http.StatusOK, `{"SecretBinary":"AAAA"}`)
	}
	return reply(http.StatusOK, `{"SecretString":`+string(quoted)+`}`)
}

func TestReferencesAreRead(t *testing.T) {
	const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:kafka-AbCdEf"
	var a account
	a.set(Parameter, "/kafka/password", "p1")
	a.set(Parameter, "arn:aws:ssm:eu-west-1:123456789012:parameter/kafka/password", "p2")
	a.set(Secret, "kafka", `{"password":"s1","port":9096,"tls":true}`)
	a.set(Secret, "whole", "s2")
	a.set(Secret, arn, `{"password":"s3"}`)
	v := NewVault(a.sdk, VaultOptions{})
	for _, test := range []struct{ provider, path, key, want string }{
		{"ssm", "", "/kafka/password", "p1"},                                                       // ${ssm:/kafka/password}
		{"ssm", "arn", "aws:ssm:eu-west-1:123456789012:parameter/kafka/password", "p2"},            // ${ssm:arn:…}
		{"ssm", "", "arn%3Aaws%3Assm%3Aeu-west-1%3A123456789012%3Aparameter/kafka/password", "p2"}, // as Amazon's provider has it
		{"secretsmanager", "kafka", "password", "s1"},
		{"secretsmanager", "kafka", "port", "9096"},
		{"secretsmanager", "kafka", "tls", "true"},
		{"secretsmanager", "", "whole", "s2"},
		{"secretsmanager", "arn", arn[4:] + ":password", "s3"},
		{"secretsmanager", "arn", arn[4:], `{"password":"s3"}`},
		{"secretsmanager", strings.ReplaceAll(arn, ":", "%3A"), "password", "s3"},
	} {
		got, err := v.Secret(t.Context())(test.provider, test.path, test.key)
		if err != nil || got != test.want {
			t.Errorf("${%s:%s:%s}: got %q, %v, want %q", test.provider, test.path, test.key, got, err, test.want)
		}
	}
	want := []string{"/kafka/password", "arn:aws:ssm:eu-west-1:123456789012:parameter/kafka/password", "kafka", "whole", arn}
	if diff := cmp.Diff(want, a.taken()); diff != "" {
		t.Errorf("requests, each once (-want +got):\n%s", diff)
	}
}

func TestValuesAreBelievedForAWhile(t *testing.T) {
	var a account
	a.set(Parameter, "p", "old")
	now := time.Now()
	v := NewVault(a.sdk, VaultOptions{Lifetime: time.Minute, Now: func() time.Time { return now }})
	read := func(want string, asks int) {
		t.Helper()
		got, err := v.Read(t.Context(), Parameter, "p")
		if err != nil || string(got) != want || len(a.taken()) != asks {
			t.Errorf("got %s, %v, want %s after %d requests", got, err, want, asks)
		}
	}
	read("old", 1)
	a.set(Parameter, "p", "new")
	now = now.Add(59 * time.Second)
	read("old", 0)
	now = now.Add(time.Second)
	read("new", 1)
	a.set(Parameter, "p", "newer")
	v.Expire()
	read("newer", 1)
}

func TestErrorsNameTheSecretAndKeepIt(t *testing.T) {
	const hidden = "h1dden"
	for _, test := range []struct {
		name, deny, text string
		kind             Kind
		key, want        string
	}{
		{name: "nothing there", kind: Parameter, want: "read n: there is nothing of that name in this account and Region (ParameterNotFound)"},
		{name: "no secret there", kind: Secret, want: "read n: there is nothing of that name in this account and Region (ResourceNotFoundException)"},
		{name: "no right", kind: Secret, text: hidden, deny: "AccessDeniedException", want: "read n: the function's role may not read it (AccessDeniedException)"},
		{name: "another refusal", kind: Parameter, text: hidden, deny: "InvalidKeyId", want: "read n: InvalidKeyId: no"},
		{name: "binary", kind: Secret, text: "binary", want: "read n: the secret is binary, and no text"},
		{name: "no JSON", kind: Secret, text: hidden, key: "password", want: "the secret is not a JSON object with keys"},
		{name: "no key", kind: Secret, text: `{"other":"` + hidden + `"}`, key: "password", want: "the secret has no key password"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := account{deny: test.deny}
			if test.text != "" {
				a.set(test.kind, "n", test.text)
			}
			path, key := "n", test.key
			if key == "" {
				path, key = "", "n"
			}
			got, err := NewVault(a.sdk, VaultOptions{}).Secret(t.Context())(string(test.kind), path, key)
			if err == nil || err.Error() != test.want || got != "" {
				t.Errorf("got %q, %v, want %s", got, err, test.want)
			}
			if strings.Contains(fmt.Sprintf("%+v", err), hidden) {
				t.Errorf("the error tells the secret: %+v", err)
			}
		})
	}
}

func TestSecretsOfAnEmulator(t *testing.T) {
	server := ministacktest.Start(t)
	sdk := aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(server.Endpoint()),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	ctx := t.Context()
	_, err := ssm.NewFromConfig(sdk).PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/kafka/password"), Value: aws.String("p1"), Type: ssmtypes.ParameterTypeSecureString})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secretsmanager.NewFromConfig(sdk).CreateSecret(ctx, &secretsmanager.CreateSecretInput{Name: aws.String("kafka"), SecretString: aws.String(`{"password":"s1"}`)}); err != nil {
		t.Fatal(err)
	}
	objects := s3.NewFromConfig(sdk, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := objects.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("files")}); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("files"), Key: aws.String("a/mm2.properties"), Body: strings.NewReader("clusters = A, B\n")}); err != nil {
		t.Fatal(err)
	}
	v := NewVault(func(context.Context) (aws.Config, error) { return sdk, nil }, VaultOptions{})
	for _, test := range []struct {
		kind       Kind
		name, want string
	}{
		{Parameter, "/kafka/password", "p1"}, {Secret, "kafka", `{"password":"s1"}`}, {Object, "files/a/mm2.properties", "clusters = A, B\n"},
	} {
		if got, err := v.Read(ctx, test.kind, test.name); err != nil || string(got) != test.want {
			t.Errorf("%s %s: got %q, %v, want %q", test.kind, test.name, got, err, test.want)
		}
	}
	for kind, name := range map[Kind]string{Parameter: "/no", Secret: "no", Object: "files/no"} {
		if _, err := v.Read(ctx, kind, name); err == nil || !strings.Contains(err.Error(), "there is nothing of that name") {
			t.Errorf("%s %s: got %v, want that it is not there", kind, name, err)
		}
	}
}
