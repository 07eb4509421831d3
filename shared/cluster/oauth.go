package cluster

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"mirrorless/shared/config"
)

// Keys of OAUTHBEARER.
const (
	tokenURL     = "sasl.oauthbearer.token.endpoint.url"
	clientID     = "sasl.oauthbearer.client.credentials.client.id"
	clientSecret = "sasl.oauthbearer.client.credentials.client.secret"
	tokenScope   = "sasl.oauthbearer.scope"
	urlEncoded   = "sasl.oauthbearer.header.urlencode"
)

// mostTokenBytes is what is read of an answer of a token endpoint.
const mostTokenBytes = 1 << 20

// tokenSource gets tokens as Kafka's DefaultJwtRetriever does: by the client
// credentials grant (RFC 6749, section 4.4) from an http or https URL, or from
// a file. A token of an endpoint is used again until most of its life is over.
type tokenSource struct {
	url        string
	id, secret string
	scope      string
	encode     bool    // KIP-1139: encode id and secret before they go into the header
	window     float64 // of a token's life after which another one is asked for
	extensions map[string]string
	client     *http.Client

	mu    sync.Mutex
	token string
	until time.Time
}

// oauth returns OAUTHBEARER. Credentials stand in keys of their own since Kafka
// 4.1 (KIP-1139), and before in the JAAS line, as clientId, clientSecret and
// scope; the keys win. TLS to the endpoint is set in the JAAS line, as in Kafka.
func (p *props) oauth() sasl.Mechanism {
	var options map[string]string
	if value, ok := p.values["sasl.jaas.config"]; ok {
		jaas, err := config.ParseJAAS(value)
		if err != nil {
			p.fail("sasl.jaas.config", "%s", strings.TrimPrefix(err.Error(), "parse sasl.jaas.config: "))
			return nil
		}
		options = jaas.Options
	}
	either := func(key, option string) string {
		return p.text(key, options[option])
	}
	s := &tokenSource{
		url: p.text(tokenURL, ""), id: either(clientID, "clientId"), secret: either(clientSecret, "clientSecret"),
		scope: either(tokenScope, "scope"), encode: p.text(urlEncoded, "false") == "true",
		window: p.fraction("sasl.login.refresh.window.factor", 0.8), extensions: map[string]string{},
	}
	for name, value := range options {
		if extension, ok := strings.CutPrefix(name, "extension_"); ok {
			s.extensions[extension] = value
		}
	}
	where, err := url.Parse(s.url)
	switch {
	case s.url == "":
		p.fail(tokenURL, "missing: OAUTHBEARER needs the URL that gives tokens")
	case err != nil:
		p.fail(tokenURL, "it is no URL") // err quotes it, and it may hold a secret
	case where.Scheme == "file":
		return s.mechanism()
	case where.Scheme != "https" && where.Scheme != "http":
		p.fail(tokenURL, "set an https, http or file URL")
	case s.id == "":
		p.fail(clientID, "missing: the token endpoint needs to know who asks")
	case s.secret == "":
		p.fail(clientSecret, "missing: the token endpoint needs to know who asks")
	}
	s.client = &http.Client{
		Timeout:   p.duration("sasl.login.read.timeout.ms", 10*time.Second, time.Millisecond, time.Hour),
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: p.endpointTLS(options), DisableKeepAlives: true},
		// Whoever the endpoint points to must not get the credentials.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s.mechanism()
}

// endpointTLS reads the ssl. options of a JAAS line.
func (p *props) endpointTLS(options map[string]string) *tls.Config {
	own := props{alias: p.alias, values: map[string]string{"security.protocol": "SSL"}}
	for name, value := range options {
		if strings.HasPrefix(name, "ssl.") {
			own.values[name] = value
		}
	}
	c := own.tls()
	if err := errors.Join(own.errs...); err != nil {
		p.fail("sasl.jaas.config", "its options for the token endpoint: %v", err)
	}
	return c
}

func (s *tokenSource) mechanism() sasl.Mechanism {
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := s.get(ctx)
		if err != nil {
			return oauth.Auth{}, &tokenError{err}
		}
		return oauth.Auth{Token: token, Extensions: s.extensions}, nil
	})
}

// tokenError is that of a token that could not be got; no broker was asked.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return "get token: " + e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

func (s *tokenSource) get(ctx context.Context) (string, error) {
	if path, ok := strings.CutPrefix(s.url, "file:"); ok {
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			path = rest
		}
		data, err := os.ReadFile(path)
		return strings.TrimSpace(string(data)), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != "" && time.Now().Before(s.until) {
		return s.token, nil
	}
	asked := time.Now()
	token, life, err := s.ask(ctx)
	if err != nil {
		return "", err
	}
	s.token, s.until = token, asked.Add(time.Duration(float64(life)*s.window))
	return token, nil
}

// ask gets one token and how long it is good for, 0 where nobody says.
func (s *tokenSource) ask(ctx context.Context) (token string, life time.Duration, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if s.scope != "" {
		form.Set("scope", s.scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, errors.New("its URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	id, secret := s.id, s.secret
	if s.encode {
		id, secret = url.QueryEscape(id), url.QueryEscape(secret)
	}
	req.SetBasicAuth(id, secret)
	resp, err := s.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the URL may hold a secret
		}
		return "", 0, fmt.Errorf("ask %s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostTokenBytes))
	if err != nil {
		return "", 0, fmt.Errorf("read answer of %s: %w", req.URL.Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("%s answers %d %s%s", req.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode), errorCode(body))
	}
	return parseToken(req.URL.Host, body)
}

// parseToken reads the answer of a token endpoint. Its errors quote nothing.
func parseToken(host string, body []byte) (token string, life time.Duration, err error) {
	var answer struct {
		AccessToken string  `json:"access_token"`
		IDToken     string  `json:"id_token"`
		ExpiresIn   float64 `json:"expires_in"` // seconds
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", 0, fmt.Errorf("%s answers what is no JSON object of a token", host)
	}
	token = answer.AccessToken
	if token == "" {
		token = answer.IDToken // as Kafka does
	}
	if token == "" {
		return "", 0, fmt.Errorf("%s answers without an access_token", host)
	}
	if answer.ExpiresIn > 0 {
		return token, seconds(answer.ExpiresIn), nil
	}
	return token, lifeOf(token), nil
}

// lifeOf reads until when a token is good; one that does not say is used once.
func lifeOf(token string) time.Duration {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return 0
	}
	var c struct {
		Exp float64 `json:"exp"`
	}
	if json.Unmarshal(claims, &c) != nil || c.Exp <= 0 {
		return 0
	}
	return max(0, seconds(c.Exp-float64(time.Now().Unix())))
}

// seconds is a duration of at most a day, which is long for a token.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 86400) * float64(time.Second))
}

// known is the form of the error codes of RFC 6749; anything else of an answer
// might be a secret.
var known = regexp.MustCompile(`^[a-z_]{1,40}$`)

func errorCode(body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || !known.MatchString(answer.Error) {
		return ""
	}
	return ", " + answer.Error
}
