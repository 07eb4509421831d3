package function

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/config"
)

func TestWhereTheConfigurationMayBe(t *testing.T) {
	for text, want := range map[string]reference{
		"mm2.properties":               {kind: "file", name: "mm2.properties"},
		"/opt/mm2.properties":          {kind: "file", name: "/opt/mm2.properties"},
		"ssm:/mirrorless/mm2":          {kind: "ssm", name: "/mirrorless/mm2"},
		"ssm:arn:aws:ssm:r:1:p":        {kind: "ssm", name: "arn:aws:ssm:r:1:p"},
		"s3://bucket/a/mm2.properties": {kind: "s3", name: "s3://bucket/a/mm2.properties", bucket: "bucket", key: "a/mm2.properties"},
	} {
		want.text = text
		got, err := parseReference(text)
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, text := range []string{"ssm:", "s3:", "s3:bucket/key", "s3://", "s3://bucket", "s3://bucket/", "s3:///key"} {
		if got, err := parseReference(text); err == nil {
			t.Errorf("got %+v of %q, want an error", got, text)
		}
	}
}

// lambdaOf is an environment whose configuration is in a, and what it is set up
// with, in order.
type lambdaOf struct {
	*environment
	account *account
	now     time.Time
	parts   []*Parts
	logs    bytes.Buffer
	// fails is returned by the next invocation, refuses by the next set-up.
	fails, refuses error
}

const secretFile = `clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
B.security.protocol = SASL_SSL
B.sasl.mechanism = PLAIN
B.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${secretsmanager:kafka:password}";
A->B.enabled = true
`

func newLambda(t *testing.T, reference string) *lambdaOf {
	t.Helper()
	t.Setenv("MIRRORLESS_CONFIG", reference)
	t.Setenv("MIRRORLESS_TABLE", "stack")
	t.Setenv("MIRRORLESS_FLOW", "")
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "key")
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9") // discard
	l := &lambdaOf{account: &account{}, now: time.Now()}
	l.environment = newEnvironment(func(p *Parts) (Handler, error) {
		if l.refuses != nil {
			return nil, l.refuses
		}
		l.parts = append(l.parts, p)
		n := len(l.parts)
		return HandlerFunc(func(context.Context, []byte) ([]byte, error) {
			err := l.fails
			l.fails = nil
			return fmt.Appendf(nil, "set-up %d", n), err
		}), nil
	}, slog.New(slog.DiscardHandler))
	l.environment.now = func() time.Time { return l.now }
	l.vault = NewVault(l.account.sdk, VaultOptions{Now: l.environment.now})
	l.logger = l.vault.Logger(slog.New(slog.NewJSONHandler(&l.logs, nil)))
	return l
}

// invoke wants the set-up that answers.
func (l *lambdaOf) wants(t *testing.T, setUp int) {
	t.Helper()
	reply, err := l.Invoke(t.Context(), nil)
	if want := fmt.Sprintf("set-up %d", setUp); err != nil || string(reply) != want {
		t.Errorf("got %s, %v, want %s", reply, err, want)
	}
}

func TestAConfigurationThatChangesIsInForceAfterAWhile(t *testing.T) {
	for _, reference := range []string{"ssm:/mm2", "s3://files/mm2.properties"} {
		l := newLambda(t, reference)
		kind, name := Parameter, "/mm2"
		if strings.HasPrefix(reference, "s3") {
			kind, name = Object, "files/mm2.properties"
		}
		l.account.set(kind, name, strings.ReplaceAll(secretFile, "${secretsmanager:kafka:password}", "p"))
		if err := l.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.wants(t, 1)
		l.account.set(kind, name, strings.ReplaceAll(secretFile, "${secretsmanager:kafka:password}", "q"))
		l.wants(t, 1)
		l.now = l.now.Add(defaultLifetime)
		l.wants(t, 2)
		l.now = l.now.Add(defaultLifetime)
		l.wants(t, 2)
		if n := len(l.account.taken()); n != 3 {
			t.Errorf("got %d requests, want 3", n)
		}
		if got := jaasOf(l.parts[1]); !strings.Contains(got, `password="q"`) {
			t.Errorf("got %s in the second set-up, want the new password", got)
		}
	}
}

func jaasOf(p *Parts) string { return p.Settings.TargetClient(config.Admin)["sasl.jaas.config"] }

func TestARotatedSecretIsInForceAfterAWhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mm2.properties")
	if err := os.WriteFile(file, []byte(secretFile), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLambda(t, file)
	l.account.set(Secret, "kafka", `{"password":"old"}`)
	l.wants(t, 1)
	l.account.set(Secret, "kafka", `{"password":"new"}`)
	l.now = l.now.Add(defaultLifetime - time.Second)
	l.wants(t, 1)
	l.now = l.now.Add(time.Second)
	l.wants(t, 2)
	// A login that is refused makes it look at once.
	l.account.set(Secret, "kafka", `{"password":"newest"}`)
	l.fails = fmt.Errorf("produce: %w", kerr.SaslAuthenticationFailed)
	if _, err := l.Invoke(t.Context(), nil); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Fatalf("got %v, want a refused login", err)
	}
	l.wants(t, 3)
	if got := jaasOf(l.parts[2]); !strings.Contains(got, `password="newest"`) {
		t.Errorf("got %s, want the newest password", got)
	}
}

func TestAFunctionGoesOnWhileItsConfigurationCannotBeRead(t *testing.T) {
	l := newLambda(t, "ssm:/mm2")
	l.account.set(Parameter, "/mm2", secretFile)
	l.account.set(Secret, "kafka", `{"password":"p"}`)
	l.wants(t, 1)
	for name, change := range map[string]func(){
		"AWS refuses":         func() { l.account.refuse("ThrottlingException") },
		"the file has errors": func() { l.account.set(Parameter, "/mm2", "clusters =\n") },
		"it cannot be set up": func() {
			l.account.set(Parameter, "/mm2", secretFile+"# changed\n")
			l.refuses = errors.New("no")
		},
	} {
		change()
		l.now = l.now.Add(defaultLifetime)
		l.account.taken()
		l.wants(t, 1)
		asked := len(l.account.taken())
		l.wants(t, 1)
		if again := len(l.account.taken()); asked == 0 || again != 0 {
			t.Errorf("%s: got %d requests and then %d, want some and none", name, asked, again)
		}
		if !strings.Contains(l.logs.String(), "configuration cannot be read again") {
			t.Errorf("%s: got logs %s, want a warning", name, &l.logs)
		}
		l.logs.Reset()
		l.account.refuse("")
		l.account.set(Parameter, "/mm2", secretFile)
		l.refuses = nil
	}
}

func TestAConfigurationThatIsNotThereYetIsReadAtTheInvocation(t *testing.T) {
	l := newLambda(t, "ssm:/mm2")
	err := l.refresh(t.Context())
	if err == nil || !l.mayPass || !strings.Contains(err.Error(), "read MIRRORLESS_CONFIG: read /mm2: there is nothing") {
		t.Fatalf("got %v, may pass %v", err, l.mayPass)
	}
	if _, err := l.Invoke(t.Context(), nil); err == nil {
		t.Error("got an invocation without a configuration")
	}
	l.account.set(Parameter, "/mm2", secretFile)
	l.account.set(Secret, "kafka", `{"password":"p"}`)
	l.wants(t, 1)
}

func TestWhatIsWrongInThePackageWillNotPass(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mm2.properties")
	if err := os.WriteFile(file, []byte("clusters =\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, reference := range []string{file, file + ".not", "s3://", ""} {
		l := newLambda(t, reference)
		if err := l.refresh(t.Context()); err == nil || l.mayPass {
			t.Errorf("%q: got %v, may pass %v, want an error that stays", reference, err, l.mayPass)
		}
	}
}

// Whatever is wrong in a file, a secret in it is not told.
func TestSecretsAreNeitherInErrorsNorInLogs(t *testing.T) {
	const hidden = "h1dden"
	for name, lines := range map[string]string{
		"nothing":             "",
		"a login that is odd": "B.sasl.jaas.config = ${secretsmanager:kafka:password}\n",
		"no such mechanism":   "B.sasl.mechanism = ${secretsmanager:kafka:password}\n",
		"no number":           "replication.factor = ${secretsmanager:kafka:password}\n",
		"no switch":           "A->B.emit.heartbeats.enabled = ${secretsmanager:kafka:password}\n",
		"no pattern":          "A->B.topics = [${secretsmanager:kafka:password}\n",
		"no policy":           "replication.policy.class = ${secretsmanager:kafka:password}\n",
		"no server":           "B.bootstrap.servers = ${secretsmanager:kafka:password}:x:y\n",
		"no protocol":         "B.security.protocol = ${secretsmanager:kafka:password}\n",
		"no key of ours":      "B.nonsense = ${secretsmanager:kafka:password}\n",
		"no store":            "B.ssl.truststore.location = ${secretsmanager:kafka:password}\n",
		"no certificate":      "B.ssl.truststore.type = PEM\nB.ssl.truststore.certificates = ${secretsmanager:kafka:password}\n",
		"no keystore":         "B.ssl.keystore.type = PEM\nB.ssl.keystore.key = ${secretsmanager:kafka:password}\nB.ssl.keystore.certificate.chain = ${secretsmanager:kafka:password}\n",
		"no compression":      "B.producer.compression.type = ${secretsmanager:kafka:password}\n",
		"no flow":             "clusters = A, B, ${secretsmanager:kafka:password}\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLambda(t, "ssm:/mm2")
			l.account.set(Parameter, "/mm2", secretFile+lines)
			l.account.set(Secret, "kafka", `{"password":"`+hidden+`"}`)
			l.environment.build = func(p *Parts) (Handler, error) { return Mirror(p) }
			err := l.refresh(t.Context())
			if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, hidden) {
				t.Errorf("the error tells the secret: %s", text)
			}
			if l.environment.handler != nil {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := l.Invoke(ctx, []byte(`{"eventSource":"SelfManagedKafka","records":{"orders-0":[{"topic":"orders","partition":0,"offset":1,"timestamp":1,"timestampType":"CREATE_TIME","headers":[]}]}}`))
				if strings.Contains(fmt.Sprint(err), hidden) {
					t.Errorf("the invocation's error tells the secret: %v", err)
				}
			}
			if strings.Contains(l.logs.String(), hidden) {
				t.Errorf("the log tells the secret: %s", &l.logs)
			}
		})
	}
}

func TestLogsAreWrittenWithoutSecrets(t *testing.T) {
	var a account
	a.set(Secret, "kafka", `{"password":"h1dden","short":"ab"}`)
	v := NewVault(a.sdk, VaultOptions{})
	for _, key := range []string{"password", "short"} {
		if _, err := v.Secret(t.Context())("secretsmanager", "kafka", key); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	l := v.Logger(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	l.With("with", "a-h1dden").WithGroup("g").Info("see h1dden", "s", "xh1ddeny", "n", 7, "e", errors.New("no h1dden"), "list", []string{"h1dden"}, slog.Group("in", "p", "h1dden"), "ab", "ab")
	const want = `{"level":"INFO","msg":"see (not shown)","with":"a-(not shown)","g":{"s":"x(not shown)y","n":7,"e":"no (not shown)","list":"[(not shown)]","in":{"p":"(not shown)"},"ab":"ab"}}` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	cause := errors.New("cause")
	err := v.Error(fmt.Errorf("h1dden: %w", cause))
	if text := fmt.Sprintf("%v %+v %s", err, err, err); text != "(not shown): cause (not shown): cause (not shown): cause" || !errors.Is(err, cause) {
		t.Errorf("got %q, is its cause: %v", text, errors.Is(err, cause))
	}
	if v.Error(nil) != nil || v.Error(cause) != cause {
		t.Error("got another error where there is nothing to hide")
	}
}

func TestTheSameConfigurationHasTheSamePrint(t *testing.T) {
	var a account
	a.set(Parameter, "/mm2", secretFile)
	a.set(Secret, "kafka", `{"password":"p"}`)
	print := func() [32]byte {
		t.Helper()
		p, err := loadProperties(t.Context(), "ssm:/mm2", NewVault(a.sdk, VaultOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		return p.print
	}
	one, two := print(), print()
	a.set(Secret, "kafka", `{"password":"q"}`)
	three := print()
	if diff := cmp.Diff([]bool{true, false}, []bool{one == two, one == three}); diff != "" {
		t.Errorf("prints are equal (-want +got):\n%s", diff)
	}
}

func TestAllThatIsMissingInTheEnvironmentIsToldAtOnce(t *testing.T) {
	l := newLambda(t, "")
	t.Setenv("MIRRORLESS_TABLE", "")
	err := l.refresh(t.Context())
	for _, want := range []string{"MIRRORLESS_CONFIG is not set", "MIRRORLESS_TABLE is not set"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}
