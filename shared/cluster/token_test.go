package cluster_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"mirrorless/shared/cluster"
)

const secret = `cl1ent secret:/%`

// mechanism is what a client would log in with; no broker is needed to see it.
func mechanism(t *testing.T, properties map[string]string, opts ...kgo.Opt) sasl.Mechanism {
	t.Helper()
	c, err := cluster.Dial("A", properties, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	mechanisms, _ := c.OptValue(kgo.SASL).([]sasl.Mechanism)
	if len(mechanisms) != 1 {
		t.Fatalf("got %d mechanisms, want one", len(mechanisms))
	}
	return mechanisms[0]
}

// hello is the first message of a login.
func hello(t *testing.T, m sasl.Mechanism, host string) string {
	t.Helper()
	_, message, err := m.Authenticate(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	return string(message)
}

// endpoint gives the tokens token-1, token-2, …
func endpoint(t *testing.T, answer func(n int64) string, see func(*http.Request)) string {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
		fmt.Fprint(w, answer(n.Add(1)))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/oauth2/token"
}

func tokenProperties(server string, more ...string) map[string]string {
	return with(map[string]string{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
		"sasl.oauthbearer.token.endpoint.url": server,
	}, more...)
}

func TestTokensAreAskedForAsKafkaDoes(t *testing.T) {
	const line = `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required `
	keys := []string{
		"sasl.oauthbearer.client.credentials.client.id", "me", "sasl.oauthbearer.client.credentials.client.secret", secret,
		"sasl.oauthbearer.scope", "kafka read",
	}
	for name, c := range map[string]struct {
		more []string
		// what the endpoint sees, and what the broker hears
		user, secret, form, hello string
	}{
		"keys of Kafka 4.1":   {keys, "me", secret, "grant_type=client_credentials&scope=kafka+read", "n,,\x01auth=Bearer token-1\x01\x01"},
		"options of the JAAS": {[]string{"sasl.jaas.config", line + `clientId="me" clientSecret="` + secret + `" scope="x" extension_logicalCluster="lkc-1";`}, "me", secret, "grant_type=client_credentials&scope=x", "n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01\x01"},
		"keys over options":   {append(keys, "sasl.jaas.config", line+`clientId="other" clientSecret="other";`), "me", secret, "grant_type=client_credentials&scope=kafka+read", "n,,\x01auth=Bearer token-1\x01\x01"},
		"encoded header":      {append(keys, "sasl.oauthbearer.header.urlencode", "true"), "me", url.QueryEscape(secret), "grant_type=client_credentials&scope=kafka+read", "n,,\x01auth=Bearer token-1\x01\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			server := endpoint(t, func(n int64) string {
				return fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, n)
			}, func(r *http.Request) {
				user, password, _ := r.BasicAuth()
				if err := r.ParseForm(); err != nil {
					t.Error(err)
				}
				got := []string{r.Method, user, password, r.PostForm.Encode(), r.Header.Get("Accept")}
				if diff := cmp.Diff([]string{"POST", c.user, c.secret, c.form, "application/json"}, got); diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
			})
			m := mechanism(t, tokenProperties(server, c.more...))
			if m.Name() != "OAUTHBEARER" {
				t.Errorf("got mechanism %s, want OAUTHBEARER", m.Name())
			}
			for range 2 { // the second login is with the same token
				if got := hello(t, m, "a:1"); got != c.hello {
					t.Errorf("got %q, want %q", got, c.hello)
				}
			}
		})
	}
}

func TestATokenIsRenewedBeforeItExpires(t *testing.T) {
	claims := func(exp time.Time) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, exp.Unix()))
	}
	for name, c := range map[string]struct {
		answer string
		again  bool // whether another login asks again
	}{
		"expires_in":         {`{"access_token":"t","expires_in":3600}`, false},
		"expires_in is over": {`{"access_token":"t","expires_in":0.000001}`, true},
		"exp in the token":   {`{"access_token":"e30.` + claims(time.Now().Add(time.Hour)) + `.x"}`, false},
		"exp is over":        {`{"access_token":"e30.` + claims(time.Now().Add(-time.Hour)) + `.x"}`, true},
		"nobody says":        {`{"id_token":"opaque"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := endpoint(t, func(int64) string { return c.answer }, func(*http.Request) { asked.Add(1) })
			m := mechanism(t, tokenProperties(server, "sasl.oauthbearer.client.credentials.client.id", "me", "sasl.oauthbearer.client.credentials.client.secret", secret))
			hello(t, m, "a:1")
			hello(t, m, "a:1")
			if got := asked.Load() == 2; got != c.again {
				t.Errorf("got %d requests for two logins", asked.Load())
			}
		})
	}
}

func TestATokenMayBeInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	m := mechanism(t, tokenProperties("file://"+path))
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := hello(t, m, "a:1"), "n,,\x01auth=Bearer "+token+"\x01\x01"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestATokenThatCannotBeGotIsExplainedWithoutSecrets(t *testing.T) {
	closed := closedPort(t)
	redirect := httptest.NewServer(http.RedirectHandler("http://"+closed, http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	say := func(body string) string {
		return endpoint(t, func(int64) string { return body }, func(*http.Request) {})
	}
	for name, c := range map[string]struct{ server, want string }{
		"nobody there":        {"http://" + closed + "/?key=" + secret[:6], "ask " + closed},
		"no JSON":             {say("<html>" + secret), "no JSON object"},
		"no token":            {say(`{"error_description":"` + secret + `"}`), "without an access_token"},
		"somewhere else":      {redirect.URL, "307"},
		"unknown certificate": {secure.URL, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			address := silentPort(t)
			m := mechanism(t, tokenProperties(c.server, "bootstrap.servers", address, "sasl.oauthbearer.client.credentials.client.id", "me", "sasl.oauthbearer.client.credentials.client.secret", secret))
			_, _, err := m.Authenticate(t.Context(), address)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "get token: ") {
				t.Fatalf("got %v, want %q in it", err, c.want)
			}
			if strings.Contains(err.Error(), "cl1ent") {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
	for name, c := range map[string]struct {
		properties map[string]string
		want       string
	}{
		"no endpoint": {tokenProperties(""), "A.sasl.oauthbearer.token.endpoint.url"},
		"no URL":      {tokenProperties("http://[" + secret), "A.sasl.oauthbearer.token.endpoint.url: it is no URL"},
		"no protocol": {tokenProperties("ftp://x"), "set an https, http or file URL"},
		"no id":       {tokenProperties("https://x"), "A.sasl.oauthbearer.client.credentials.client.id"},
		"no secret":   {tokenProperties("https://x", "sasl.oauthbearer.client.credentials.client.id", "me"), "A.sasl.oauthbearer.client.credentials.client.secret"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cluster.Dial("A", c.properties)
			wantError(t, err, c.want)
			if strings.Contains(err.Error(), "cl1ent") {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}

func TestMSKIAMSignsWithTheCredentialsOfTheMoment(t *testing.T) {
	n := 0
	m := mechanism(t, map[string]string{
		"bootstrap.servers": "b-1.x.kafka.eu-central-1.amazonaws.com:9098", "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM",
		"sasl.jaas.config":                   "software.amazon.msk.auth.iam.IAMLoginModule required;",
		"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
	}, cluster.WithCredentials(func(context.Context) (cluster.Credentials, error) {
		n++
		return cluster.Credentials{AccessKeyID: fmt.Sprintf("AKID%d", n), SecretAccessKey: secret, SessionToken: "session"}, nil
	}))
	for _, key := range []string{"AKID1", "AKID2"} {
		message := hello(t, m, "b-1.x.kafka.eu-central-1.amazonaws.com:9098")
		if strings.Contains(message, secret) {
			t.Fatal("the token holds the secret key")
		}
		got := map[string]string{}
		if err := json.Unmarshal([]byte(message), &got); err != nil {
			t.Fatal(err)
		}
		date := got["x-amz-date"]
		if len(date) < 8 || len(got["x-amz-signature"]) != 64 {
			t.Fatalf("got date %q and signature %q", date, got["x-amz-signature"])
		}
		delete(got, "x-amz-date")
		delete(got, "x-amz-signature")
		want := map[string]string{
			"version": "2020_10_22", "host": "b-1.x.kafka.eu-central-1.amazonaws.com", "user-agent": "mirrorless", "action": "kafka-cluster:Connect",
			"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": key + "/" + date[:8] + "/eu-central-1/kafka-cluster/aws4_request",
			"x-amz-expires": "900", "x-amz-signedheaders": "host", "x-amz-security-token": "session",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("token (-want +got):\n%s", diff)
		}
	}
}
