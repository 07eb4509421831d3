package stories_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
)

// Secrets of the story, none of which may ever be printed. The user's password
// has the characters that JAAS lines and properties files trip over.
const (
	userPassword  = `s3;cr=e"t\1`
	wrongPassword = "wr0ng;pass"
	storePassword = "st0re-secret"
	keyPassword   = "k3y-secret"
	clientSecret  = "cl1ent secret:/"
)

func storySecrets() []string {
	return []string{userPassword, `s3;cr=e`, wrongPassword, storePassword, keyPassword, clientSecret, "cl1ent", "PRIVATE KEY", "eyJ"}
}

// door is a cluster whose one broker is reached in every way, with the files
// that its users have.
type door struct {
	*kafka.Cluster
	authority                *authority
	inPEM, inJKS, inPKCS12   string // truststores
	ownPEM, ownJKS, ownPKCS  string // keystores of the user
	strangerCA, strangerCert string // of another authority
	tokens                   *tokenEndpoint
}

// doorListeners are the ways in.
func doorListeners() map[string]string {
	return map[string]string{
		"TLS": "SSL", "MTLS": "SSL", "EXPIRED": "SSL", "OTHER": "SSL",
		"LOGIN": "SASL_PLAINTEXT", "SECURE": "SASL_SSL", "BOTH": "SASL_SSL", "TOKEN": "SASL_PLAINTEXT",
	}
}

// javaQuoted is a value between quotation marks, as JAAS wants it.
func javaQuoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// inProperties is a value as a person writes it into a properties file.
func inProperties(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }

func jaasLine(module, user, password string) string {
	return inProperties(fmt.Sprintf(`org.apache.kafka.common.security.%sLoginModule required username="%s" password=%s;`, module, user, javaQuoted(password)))
}

// prepareDoor makes the files; serving returns the broker's settings for them.
func prepareDoor(t *testing.T) *door {
	t.Helper()
	d := &door{authority: newAuthority(t, "Story CA")}
	d.inPEM, d.inJKS, d.inPKCS12 = d.authority.truststores(t, storePassword)
	user := d.authority.issue(t, "mirror", time.Now().Add(time.Hour))
	d.ownPEM = d.authority.keystorePEM(t, "user.pem", user)
	d.ownJKS = d.authority.keystoreJKS(t, "user.jks", user, storePassword, keyPassword)
	d.ownPKCS = d.authority.keystorePKCS12(t, "user.p12", user, storePassword)
	stranger := newAuthority(t, "Another CA")
	d.strangerCA = stranger.file(t, "ca.pem", certPEM(stranger.cert))
	d.strangerCert = stranger.keystorePEM(t, "user.pem", stranger.issue(t, "mirror", time.Now().Add(time.Hour)))
	d.tokens = startTokenEndpoint(t)
	return d
}

func (d *door) serving(t *testing.T) map[string]string {
	t.Helper()
	hour := time.Now().Add(time.Hour)
	good := d.authority.keystorePEM(t, "broker.pem", d.authority.issue(t, "127.0.0.1", hour))
	settings := map[string]string{}
	set := func(listener string, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			settings["listener.name."+strings.ToLower(listener)+"."+pairs[i]] = pairs[i+1]
		}
	}
	certificates := map[string]string{
		"TLS": good, "MTLS": good, "SECURE": good, "BOTH": good,
		"EXPIRED": d.authority.keystorePEM(t, "expired.pem", d.authority.issue(t, "127.0.0.1", time.Now().Add(-time.Hour))),
		"OTHER":   d.authority.keystorePEM(t, "other.pem", d.authority.issue(t, "broker-1.example.com", hour)),
	}
	for listener, file := range certificates {
		set(listener, "ssl.keystore.type", "PEM", "ssl.keystore.location", file, "ssl.truststore.type", "PEM", "ssl.truststore.location", d.inPEM)
	}
	set("MTLS", "ssl.client.auth", "required")
	set("BOTH", "ssl.client.auth", "required")
	const security = "org.apache.kafka.common.security."
	for _, listener := range []string{"LOGIN", "SECURE", "BOTH"} {
		set(listener, "sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			"plain.sasl.jaas.config", security+"plain.PlainLoginModule required user_mirror="+javaQuoted(userPassword)+";",
			"scram-sha-256.sasl.jaas.config", security+"scram.ScramLoginModule required;",
			"scram-sha-512.sasl.jaas.config", security+"scram.ScramLoginModule required;")
	}
	set("TOKEN", "sasl.enabled.mechanisms", "OAUTHBEARER",
		"oauthbearer.sasl.jaas.config", security+`oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="kafka";`)
	return settings
}

// access are lines of a cluster's settings, without its alias.
type access struct {
	name, listener string
	lines          []string
}

// ways are those that work, as people write them.
func (d *door) ways() []access {
	trust := []string{"ssl.truststore.location = " + d.inPEM, "ssl.truststore.type = PEM"}
	scram256, scram512, plain := jaasLine("scram.Scram", "mirror", userPassword), jaasLine("scram.Scram", "mirror", userPassword), jaasLine("plain.Plain", "mirror", userPassword)
	in := func(name, listener, protocol string, lines ...string) access {
		return access{name, listener, append([]string{"security.protocol = " + protocol}, lines...)}
	}
	return []access{
		{name: "open", listener: ""},
		in("tls", "TLS", "SSL", trust...),
		in("tls-jks", "TLS", "ssl", "ssl.truststore.location = "+d.inJKS, "ssl.truststore.password = "+storePassword),
		in("tls-pkcs12", "TLS", "SSL", "ssl.truststore.location = "+d.inPKCS12, "ssl.truststore.password = "+storePassword, "ssl.truststore.type = PKCS12", "ssl.enabled.protocols = TLSv1.3"),
		in("tls-noname", "OTHER", "SSL", append(trust, "ssl.endpoint.identification.algorithm =")...),
		in("mtls", "MTLS", "SSL", append(trust, "ssl.keystore.location = "+d.ownPEM, "ssl.keystore.type = PEM")...),
		in("mtls-jks", "MTLS", "SSL", "ssl.truststore.location = "+d.inJKS, "ssl.truststore.password = "+storePassword,
			"ssl.keystore.location = "+d.ownJKS, "ssl.keystore.password = "+storePassword, "ssl.key.password = "+keyPassword),
		in("mtls-pkcs12", "MTLS", "SSL", "ssl.truststore.location = "+d.inPKCS12, "ssl.truststore.password = "+storePassword,
			"ssl.keystore.location = "+d.ownPKCS, "ssl.keystore.type = PKCS12", "ssl.keystore.password = "+storePassword),
		in("plain", "LOGIN", "SASL_PLAINTEXT", "sasl.mechanism = PLAIN", "sasl.jaas.config = "+plain),
		in("scram256", "LOGIN", "SASL_PLAINTEXT", "sasl.mechanism = SCRAM-SHA-256", "sasl.jaas.config = "+scram256),
		in("scram512", "LOGIN", "SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512", "sasl.jaas.config="+strings.Replace(scram512, " required ", " required \\\n    ", 1)),
		in("plain-tls", "SECURE", "SASL_SSL", append(trust, "sasl.mechanism = PLAIN", "sasl.jaas.config = "+plain)...),
		in("scram256-tls", "SECURE", "SASL_SSL", append(trust, "sasl.mechanism = SCRAM-SHA-256", "sasl.jaas.config = "+scram256)...),
		in("scram512-tls", "SECURE", "SASL_SSL", "sasl.mechanism = SCRAM-SHA-512", "sasl.jaas.config = "+scram512, "ssl.truststore.location = "+d.inJKS, "ssl.truststore.password = "+storePassword),
		in("scram512-mtls", "BOTH", "SASL_SSL", append(trust, "sasl.mechanism = SCRAM-SHA-512", "sasl.jaas.config = "+scram512, "ssl.keystore.location = "+d.ownPEM, "ssl.keystore.type = PEM")...),
		in("token", "TOKEN", "SASL_PLAINTEXT", d.tokenLines(clientSecret)...),
		in("token-jaas", "TOKEN", "SASL_PLAINTEXT", "sasl.mechanism = OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url = "+d.tokens.URL,
			`sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="mirror" clientSecret="`+clientSecret+`" scope="kafka";`),
	}
}

func (d *door) tokenLines(secret string) []string {
	return []string{
		"sasl.mechanism = OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url = " + d.tokens.URL,
		"sasl.oauthbearer.client.credentials.client.id = mirror", "sasl.oauthbearer.client.credentials.client.secret = " + secret,
		"sasl.oauthbearer.scope = kafka",
	}
}

// mistake is an access that fails, and what the message has to say beside the
// alias and the address.
type mistake struct {
	access
	want []string
}

func (d *door) mistakes() []mistake {
	trust := []string{"ssl.truststore.location = " + d.inPEM, "ssl.truststore.type = PEM"}
	scram := []string{"sasl.mechanism = SCRAM-SHA-512", "sasl.jaas.config = " + jaasLine("scram.Scram", "mirror", userPassword)}
	plain := []string{"sasl.mechanism = PLAIN", "sasl.jaas.config = " + jaasLine("plain.Plain", "mirror", userPassword)}
	in := func(name, listener, protocol string, lines []string, want ...string) mistake {
		return mistake{access{name, listener, append([]string{"security.protocol = " + protocol}, lines...)}, want}
	}
	both := func(a, b []string) []string { return slices.Concat(a, b) }
	return []mistake{
		in("tls-on-plain", "", "SSL", trust, "over SSL", "should tls-on-plain.security.protocol be PLAINTEXT"),
		in("sasl-tls-on-sasl", "LOGIN", "SASL_SSL", both(trust, scram), "over SASL_SSL (SCRAM-SHA-512)", "should sasl-tls-on-sasl.security.protocol be SASL_PLAINTEXT"),
		in("plain-on-tls", "TLS", "PLAINTEXT", nil, "over PLAINTEXT", "should plain-on-tls.security.protocol be SSL"),
		in("sasl-on-sasl-tls", "SECURE", "SASL_PLAINTEXT", scram, "over SASL_PLAINTEXT (SCRAM-SHA-512)", "should sasl-on-sasl-tls.security.protocol be SASL_SSL"),
		in("wrong-plain", "LOGIN", "SASL_PLAINTEXT", []string{"sasl.mechanism = PLAIN", "sasl.jaas.config = " + jaasLine("plain.Plain", "mirror", wrongPassword)}, "over SASL_PLAINTEXT (PLAIN)", "user name or password", "wrong-plain.sasl.jaas.config"),
		in("wrong-scram", "SECURE", "SASL_SSL", both(trust, []string{"sasl.mechanism = SCRAM-SHA-512", "sasl.jaas.config = " + jaasLine("scram.Scram", "mirror", wrongPassword)}), "over SASL_SSL (SCRAM-SHA-512)", "user name or password", "wrong-scram.sasl.jaas.config"),
		in("wrong-user", "LOGIN", "SASL_PLAINTEXT", []string{"sasl.mechanism = SCRAM-SHA-256", "sasl.jaas.config = " + jaasLine("scram.Scram", "nobody", userPassword)}, "over SASL_PLAINTEXT (SCRAM-SHA-256)", "user name or password"),
		in("wrong-mechanism", "TOKEN", "SASL_PLAINTEXT", plain, "over SASL_PLAINTEXT (PLAIN)", "does not have the mechanism", "wrong-mechanism.sasl.mechanism"),
		in("sasl-on-plain", "", "SASL_PLAINTEXT", plain, "over SASL_PLAINTEXT (PLAIN)", "sasl-on-plain.security.protocol"),
		in("sasl-on-tls", "TLS", "SASL_SSL", both(trust, scram), "over SASL_SSL (SCRAM-SHA-512)", "sasl-on-tls.security.protocol"),
		in("plain-on-sasl", "LOGIN", "PLAINTEXT", nil, "over PLAINTEXT", "SASL (plain-on-sasl.security.protocol)"),
		in("tls-on-sasl-tls", "SECURE", "SSL", trust, "over SSL", "SASL (tls-on-sasl-tls.security.protocol)"),
		in("unknown-ca", "TLS", "SSL", []string{"ssl.truststore.location = " + d.strangerCA}, "over SSL", "signed by nobody", "unknown-ca.ssl.truststore.location"),
		in("public-cas", "TLS", "SSL", nil, "over SSL", "signed by nobody", "public-cas.ssl.truststore.location"),
		in("expired", "EXPIRED", "SSL", trust, "over SSL", "expired"),
		in("other-name", "OTHER", "SSL", trust, "over SSL", "for other names than 127.0.0.1", "other-name.ssl.endpoint.identification.algorithm"),
		in("no-certificate", "MTLS", "SSL", trust, "over SSL", "client certificate", "no-certificate.ssl.keystore.location"),
		in("strange-certificate", "MTLS", "SSL", append(trust, "ssl.keystore.location = "+d.strangerCert), "over SSL", "client certificate", "strange-certificate.ssl.keystore.location"),
		in("wrong-secret", "TOKEN", "SASL_PLAINTEXT", d.tokenLines(wrongPassword), "over SASL_PLAINTEXT (OAUTHBEARER)", "no token", "401 Unauthorized, invalid_client", "wrong-secret.sasl.oauthbearer.token.endpoint.url"),
		in("wrong-scope", "TOKEN", "SASL_PLAINTEXT", slices.DeleteFunc(d.tokenLines(clientSecret), func(l string) bool { return strings.HasPrefix(l, "sasl.oauthbearer.scope") }), "over SASL_PLAINTEXT (OAUTHBEARER)", "refused the token", "wrong-scope.sasl.oauthbearer.scope"),
	}
}

// address is that of a listener, the plain one's for "".
func (d *door) address(listener string) string {
	if listener == "" {
		return d.Bootstrap()
	}
	return d.Listener(listener)
}

// flowsFrom writes a file with one flow from each access into B.
func (d *door) flowsFrom(t *testing.T, b []string, from ...access) string {
	t.Helper()
	var names, lines []string
	for _, a := range from {
		names = append(names, a.name)
		lines = append(lines, a.name+".bootstrap.servers = "+d.address(a.listener), a.name+"->B.enabled = true")
		for _, line := range a.lines {
			lines = append(lines, a.name+"."+line)
		}
	}
	for _, line := range b {
		lines = append(lines, "B."+line)
	}
	lines = append([]string{
		"clusters = B, " + strings.Join(names, ", "),
		"topics = orders", "emit.checkpoints.enabled = false", "replication.factor = 1", "refresh.topics.interval.seconds = 5",
	}, lines...)
	path := filepath.Join(t.TempDir(), "mm2.properties")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loaded is a file that has no errors.
func loaded(t *testing.T, file string) *config.Config {
	t.Helper()
	c, err := config.Load(file, config.Sources{ReadFile: os.ReadFile})
	if err == nil {
		err = c.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connectAs loads a file and connects to one of its clusters as the product does.
func connectAs(ctx context.Context, t *testing.T, file, alias string) (*kgo.Client, error) {
	t.Helper()
	c := loaded(t, file)
	found, ok := c.Cluster(alias)
	if !ok {
		t.Fatalf("no cluster %s in the file", alias)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	properties := found.Client(config.Admin)
	properties["socket.connection.setup.timeout.ms"] = "3000"
	return cluster.Connect(ctx, alias, properties)
}

// wantNoSecret fails where anything that was said holds a secret.
func wantNoSecret(t *testing.T, who, said string) {
	t.Helper()
	for _, secret := range storySecrets() {
		if strings.Contains(said, secret) {
			t.Errorf("%s tells the secret %q:\n%s", who, secret, said)
		}
	}
}

// TestEveryAuthenticationReplicatesAndEveryMistakeIsExplained enters one broker
// in every way that it can serve, and copies a record each way.
func TestEveryAuthenticationReplicatesAndEveryMistakeIsExplained(t *testing.T) {
	mirrorless(t) // built before the clock runs
	ctx := within(t, 4*time.Minute)
	a, b := prepareDoor(t), prepareDoor(t)
	a.Cluster, b.Cluster = startBoth(t,
		kafka.Options{Listeners: doorListeners(), Properties: a.serving(t)},
		kafka.Options{Listeners: doorListeners(), Properties: b.serving(t)})
	onA, onB := connect(t, a.Cluster), connect(t, b.Cluster)
	addUsers(ctx, t, onA, onB)
	create(ctx, t, onA, 1, nil, "orders")
	produce(ctx, t, onA, &kgo.Record{Topic: "orders", Value: []byte("a record")})

	// B is entered in the strictest way: a password over TLS with certificates of
	// both sides.
	strictest := b.ways()[slices.IndexFunc(b.ways(), func(w access) bool { return w.name == "scram512-mtls" })]
	intoB := append(slices.Clone(strictest.lines), "bootstrap.servers = "+b.address(strictest.listener))

	var mistakes []access
	for _, m := range a.mistakes() {
		mistakes = append(mistakes, m.access)
	}
	wrong, right := a.flowsFrom(t, intoB, mistakes...), a.flowsFrom(t, intoB, a.ways()...)
	t.Run("mistakes are explained", func(t *testing.T) {
		for _, m := range a.mistakes() {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				_, err := connectAs(ctx, t, wrong, m.name)
				e, ok := errors.AsType[*cluster.Error](err)
				if !ok {
					t.Fatalf("got %v, want a *cluster.Error", err)
				}
				t.Log(e)
				wantNoSecret(t, m.name, e.Error())
				for _, want := range append(m.want, "cluster "+m.name+" at "+a.address(m.listener)) {
					if !strings.Contains(e.Error(), want) {
						t.Errorf("got %q, want %q in it", e, want)
					}
				}
			})
		}
	})
	t.Run("run copies every way", func(t *testing.T) { copiesEveryWay(ctx, t, a, onB, b.Cluster, right) })
	t.Run("run explains", func(t *testing.T) { runExplains(ctx, t, a, wrong) })
}

// addUsers gives SCRAM's users their passwords.
func addUsers(ctx context.Context, t *testing.T, clients ...*kgo.Client) {
	t.Helper()
	for _, client := range clients {
		// Kafka takes a user once in a request.
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			user := kadm.UpsertSCRAM{User: "mirror", Mechanism: mechanism, Iterations: 4096, Password: userPassword}
			altered, err := kadm.NewClient(client).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{user})
			if err == nil {
				err = altered.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func copiesEveryWay(ctx context.Context, t *testing.T, a *door, onB *kgo.Client, b *kafka.Cluster, file string) {
	started := time.Now()
	r := run(t, nil, file)
	for _, w := range a.ways() {
		eventually(ctx, t, "the record by way of "+w.name, func() bool {
			select {
			case <-r.Done():
				t.Fatalf("run ended with %v", r.Err())
			default:
			}
			return ends(ctx, t, onB, w.name+".orders") == 1
		})
		if diff := cmp.Diff([]string{"a record"}, read(ctx, t, b, w.name+".orders", 1)); diff != "" {
			t.Errorf("records by way of %s (-want +got):\n%s", w.name, diff)
		}
	}
	t.Logf("%d ways copied a record within %v", len(a.ways()), time.Since(started).Round(time.Millisecond))
	r.stop(t)
	wantNoSecret(t, "run", r.out.String())
	if got := a.tokens.grants(); got == 0 {
		t.Error("got no token asked for, want some")
	}
}

// runExplains wants, for every mistake of a file, a line of a run with its cause.
func runExplains(ctx context.Context, t *testing.T, a *door, file string) {
	r := run(t, nil, file)
	missing := map[string]string{}
	said := func() bool {
		clear(missing)
		lines := strings.Split(r.out.String(), "\n")
		for _, m := range a.mistakes() {
			ok := slices.ContainsFunc(lines, func(line string) bool {
				return strings.Contains(line, "cluster "+m.name+" at "+a.address(m.listener)) &&
					!slices.ContainsFunc(m.want, func(want string) bool { return !strings.Contains(line, want) })
			})
			if !ok {
				missing[m.name] = strings.Join(m.want, ", ")
			}
		}
		return len(missing) == 0
	}
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); !said() && limit.Err() == nil; <-tick.C {
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("run says nothing like %q of %s", missing[name], name)
	}
	wantNoSecret(t, "run", r.out.String())
}

// tokenEndpoint is an authorization server whose tokens nobody signs: the
// broker's default validator, for development, takes those.
type tokenEndpoint struct {
	URL string

	mu    sync.Mutex
	count int
}

func startTokenEndpoint(t *testing.T) *tokenEndpoint {
	t.Helper()
	e := &tokenEndpoint{}
	server := httptest.NewServer(http.HandlerFunc(e.answer))
	t.Cleanup(server.Close)
	e.URL = server.URL + "/oauth2/token"
	return e
}

func (e *tokenEndpoint) grants() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count
}

func (e *tokenEndpoint) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	user, secret, _ := r.BasicAuth()
	if user != "mirror" || secret != clientSecret || r.FormValue("grant_type") != "client_credentials" {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"not %s"}`, secret)
		return
	}
	e.mu.Lock()
	e.count++
	e.mu.Unlock()
	claims, err := json.Marshal(map[string]any{
		"sub": "mirror", "scope": strings.Fields(r.FormValue("scope")),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	encode := base64.RawURLEncoding.EncodeToString
	token := encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
}
