package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Error is a cluster that cannot be talked to, with the likely cause.
type Error struct {
	Alias     string
	Host      string // host:port, "" where no connection was tried
	Protocol  string // as in security.protocol
	Mechanism string // as in sasl.mechanism; "" without SASL
	Cause     string // what to look at
	Err       error
}

// Error names the cluster, what was tried and the likely cause.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "connect to cluster %s", e.Alias)
	if e.Host != "" {
		fmt.Fprintf(&b, " at %s", e.Host)
	}
	fmt.Fprintf(&b, " over %s", e.Protocol)
	if e.Mechanism != "" {
		fmt.Fprintf(&b, " (%s)", e.Mechanism)
	}
	if e.Cause != "" {
		fmt.Fprintf(&b, ": %s", e.Cause)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Explain returns err as an [*Error] if client, one of [Dial]'s, has a broker
// that it could not connect to, else err itself. Call it on the error of a
// request that got no answer.
func Explain(client *kgo.Client, err error) error {
	if err == nil {
		return nil
	}
	if c := connectionsOf(client); c != nil {
		return c.explain(err)
	}
	return err
}

// Unreachable reports that client, one of [Dial]'s, has a broker that it could not
// connect to the last time it tried.
func Unreachable(client *kgo.Client) bool {
	c := connectionsOf(client)
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures) > 0
}

// Refused reports that err is of a connection that was made and then refused, by
// either side: certificates, TLS where there is none or the reverse, a login.
// They are neither network errors nor, all of them, a broker's answers.
func Refused(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*handshakeError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tokenError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*credentialsError](err); ok {
		return true
	}
	for _, answer := range []error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return err != nil && (strings.Contains(err.Error(), "tls alert") || strings.Contains(err.Error(), "remote error: tls"))
}

func connectionsOf(client *kgo.Client) *connections {
	hooks, _ := client.OptValue(kgo.WithHooks).([]kgo.Hook)
	for _, h := range hooks {
		if c, ok := h.(*connections); ok {
			return c
		}
	}
	return nil
}

// stage is how far a connection came.
type stage int

const (
	dialled   stage = iota // nothing was heard of the broker
	answered               // it speaks Kafka's protocol to us
	loggingIn              // it has the SASL mechanism
	connected
)

// connections remembers, as a hook of the client, what came of connecting to
// each host, for franz-go's errors name neither host nor cluster.
type connections struct {
	alias, protocol, mechanism string

	mu       sync.Mutex
	stages   map[string]stage // of the latest connection
	failures map[string]failure
}

type failure struct {
	stage stage
	err   error
}

func newConnections(alias, protocol string) *connections {
	return &connections{alias: alias, protocol: protocol, stages: map[string]stage{}, failures: map[string]failure{}}
}

func (c *connections) reach(host string, s stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stages[host] = max(c.stages[host], s)
}

// OnBrokerRead is kgo.HookBrokerRead.
func (c *connections) OnBrokerRead(meta kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err == nil {
		c.reach(hostOf(meta), answered)
	}
}

// OnBrokerConnect is kgo.HookBrokerConnect; err is also that of the handshakes.
func (c *connections) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	host := hostOf(meta)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.stages[host] = connected
		delete(c.failures, host)
		return
	}
	// That the caller gave up says less than what went wrong before.
	if _, before := c.failures[host]; !before || !errors.Is(err, context.Canceled) {
		c.failures[host] = failure{c.stages[host], err}
	}
	c.stages[host] = dialled
}

func hostOf(meta kgo.BrokerMetadata) string {
	return net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
}

func (c *connections) explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &Error{Alias: c.alias, Protocol: c.protocol, Mechanism: c.mechanism, Err: err}
	if len(c.failures) > 0 {
		hosts := slices.Sorted(maps.Keys(c.failures))
		first := c.failures[hosts[0]]
		e.Host, e.Err, e.Cause = strings.Join(hosts, ", "), first.err, c.cause(first)
		return e
	}
	if isAnswer(err) {
		return err
	}
	e.Host = strings.Join(slices.Sorted(maps.Keys(c.stages)), ", ")
	e.Cause = c.cause(failure{connected, err})
	return e
}

// isAnswer reports whether a broker said err, so that the connection was fine.
func isAnswer(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}

// cause says what most likely is wrong, from what the other side did.
func (c *connections) cause(f failure) string {
	err := f.err
	// These come first, for the network or the certificates that they speak of are
	// not the broker's.
	if _, ok := errors.AsType[*tokenError](err); ok {
		return fmt.Sprintf("there is no token to log in with; look at %s.%s and the client's id and secret", c.alias, tokenURL)
	}
	if _, ok := errors.AsType[*credentialsError](err); ok {
		return "there are no credentials of AWS to log in with; look at the function's role, or at the profile"
	}
	usesTLS := strings.HasSuffix(c.protocol, "SSL")
	usesSASL := strings.HasPrefix(c.protocol, "SASL_")
	key := c.alias + ".security.protocol"
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Sprintf("the port does not speak TLS; should %s be %s, or is the port another one?", key, strings.Replace(c.protocol, "SSL", "PLAINTEXT", 1))
	}
	if hostErr, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the broker's certificate is for other names than %s; connect by one of its names, or set %s.ssl.endpoint.identification.algorithm to nothing", hostErr.Host, c.alias)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Sprintf("the broker's certificate is signed by nobody that is trusted here; does %s.ssl.truststore.location hold its authority?", c.alias)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the broker's certificate has expired, or a clock is wrong"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok || strings.Contains(err.Error(), "remote error: tls") {
		return fmt.Sprintf("the broker refused the TLS handshake; does it want a client certificate that it trusts (%s.ssl.keystore.location), or another TLS version?", c.alias)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host name is not known here"
	}
	// franz-go tells an alert of TLS from an answer, by text alone.
	if !usesTLS && strings.Contains(err.Error(), "tls alert") {
		return fmt.Sprintf("the port speaks TLS; should %s be %s?", key, strings.Replace(c.protocol, "PLAINTEXT", "SSL", 1))
	}
	_, shaking := errors.AsType[*handshakeError](err)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed), f.stage == loggingIn && isClosed(err):
		return c.refused()
	case errors.Is(err, kerr.UnsupportedSaslMechanism), f.stage == answered && isClosed(err) && usesSASL:
		return fmt.Sprintf("the broker does not have the mechanism; look at %s.sasl.mechanism, or at %s if it wants no SASL", c.alias, key)
	case errors.Is(err, kerr.IllegalSaslState):
		return fmt.Sprintf("the broker did not expect a login; look at %s", key)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case shaking && (isTimeout(err) || isClosed(err)):
		return fmt.Sprintf("the other side does not answer a TLS handshake; should %s be %s, or is the port another one?", key, strings.Replace(c.protocol, "SSL", "PLAINTEXT", 1))
	case isTimeout(err):
		return "no answer; is a firewall or a security group in between?"
	case isClosed(err) && f.stage >= answered:
		return fmt.Sprintf("the broker closed the connection; does the port want SASL (%s)?", key)
	case isClosed(err) && !usesTLS:
		return fmt.Sprintf("the broker closed the connection; does the port want TLS (%s = %s)?", key, strings.Replace(c.protocol, "PLAINTEXT", "SSL", 1))
	}
	return ""
}

// refused says who the broker did not let in.
func (c *connections) refused() string {
	switch c.mechanism {
	case "OAUTHBEARER":
		return fmt.Sprintf("the broker refused the token; look at %s.%s, and at the issuer, audience and scope that the broker wants", c.alias, tokenScope)
	case "AWS_MSK_IAM":
		return "the broker refused the identity of AWS; may it do kafka-cluster:Connect on the cluster, and is the clock right?"
	}
	return fmt.Sprintf("the broker refused user name or password; look at %s.sasl.jaas.config and at the user on the broker", c.alias)
}

func isTimeout(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
