package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
)

// tls returns the configuration for SSL and SASL_SSL, nil for the others.
func (p *props) tls() *tls.Config {
	if !strings.HasSuffix(p.protocol(), "SSL") {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.truststore()}
	if key := p.keystore(); key != nil {
		config.Certificates = []tls.Certificate{*key}
	}
	p.versions(config)
	p.ciphers(config)
	const algorithm = "ssl.endpoint.identification.algorithm"
	if value, ok := p.values[algorithm]; ok {
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "https":
		case "":
			withoutHostNames(config)
		default:
			p.fail(algorithm, "set https, or nothing to switch the check of host names off")
		}
	}
	return config
}

// withoutHostNames checks the broker's certificate against the authorities, but
// not whose name it bears: crypto/tls has no such switch.
func withoutHostNames(config *tls.Config) {
	config.InsecureSkipVerify = true
	roots := config.RootCAs
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the broker showed no certificate")
		}
		intermediates := x509.NewCertPool()
		for _, c := range state.PeerCertificates[1:] {
			intermediates.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
		return err
	}
}

// versions reads ssl.enabled.protocols. Java, too, speaks none below 1.2
// whatever the list says.
func (p *props) versions(config *tls.Config) {
	const key = "ssl.enabled.protocols"
	listed := p.list(key)
	if len(listed) == 0 {
		return
	}
	has12, has13 := slices.Contains(listed, "TLSv1.2"), slices.Contains(listed, "TLSv1.3")
	switch {
	case !has12 && !has13:
		p.fail(key, "set TLSv1.2 or TLSv1.3; older versions are not spoken")
	case !has12:
		config.MinVersion = tls.VersionTLS13
	case !has13:
		config.MaxVersion = tls.VersionTLS12
	}
}

// ciphers reads ssl.cipher.suites, whose names are the same in Java and here.
func (p *props) ciphers(config *tls.Config) {
	const key = "ssl.cipher.suites"
	for _, name := range p.list(key) {
		i := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			p.fail(key, "%q is no cipher suite that is safe to use", name)
			continue
		}
		config.CipherSuites = append(config.CipherSuites, tls.CipherSuites()[i].ID)
	}
}

func (p *props) list(key string) []string {
	var items []string
	for item := range strings.SplitSeq(p.values[key], ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// dial opens a connection, and makes it TLS where config is there.
func dial(ctx context.Context, dialer *net.Dialer, config *tls.Config, network, host string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, host)
	if err != nil || config == nil {
		return conn, err
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(host)
	}
	// A port that waits for a plain request never answers a handshake.
	ctx, cancel := context.WithTimeout(ctx, dialer.Timeout)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &handshakeError{err}
	}
	return secure, nil
}

// handshakeError is the failure of a TLS handshake on a connection that opened.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }
