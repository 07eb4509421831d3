// Package cluster makes franz-go clients of Kafka client settings as they stand
// in an mm2.properties file: Java's key names, JAAS lines, Java keystores.
//
//	c, err := cluster.Connect(ctx, "A", f.SourceClient(config.Admin))
//	if err != nil {
//		return err // connect to cluster A at b1:9093 over SASL_SSL: …
//	}
//	defer c.Close()
//
// [Dial] does the same without a connection. Every error names the cluster's
// alias; what a broker or a network refuses also names host, protocol and the
// likely cause. None holds a password, a JAAS option or key material.
//
// Connections that were idle for half a minute are closed, for a function that
// was frozen longer finds them broken.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Dial returns a client of the cluster known as alias. It opens no connection
// before the first request. properties are Java client properties; those that
// mean nothing to franz-go are passed over. opts come last, so they win; a
// kgo.Dialer among them has to speak TLS itself.
func Dial(alias string, properties map[string]string, opts ...kgo.Opt) (*kgo.Client, error) {
	opts, err := Options(alias, properties, opts...)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("set up client of cluster %s: %w", alias, err)
	}
	return client, nil
}

// Options returns what [Dial] makes a client of, for a caller that makes it
// itself. They are for one client: they hold what [Explain] knows of it.
func Options(alias string, properties map[string]string, opts ...kgo.Opt) ([]kgo.Opt, error) {
	p := props{alias: alias, values: properties}
	c := newConnections(alias, p.protocol())
	all := []kgo.Opt{kgo.SeedBrokers(p.servers()...), kgo.WithHooks(c)}
	all = append(all, p.limits()...)

	tlsConfig := p.tls()
	dialer := &net.Dialer{Timeout: p.duration("socket.connection.setup.timeout.ms", 10*time.Second, time.Millisecond, time.Hour)}
	all = append(all, kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
		return dial(ctx, dialer, tlsConfig, network, host)
	}))

	var rest []kgo.Opt
	var credentials func(context.Context) (Credentials, error)
	for _, opt := range opts {
		if c, ok := opt.(credentialsOpt); ok {
			credentials = c.fn
		} else {
			rest = append(rest, opt)
		}
	}
	if mechanism := p.sasl(credentials); mechanism != nil {
		c.mechanism = mechanism.Name()
		all = append(all, kgo.SASL(watched{mechanism, c}))
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, fmt.Errorf("set up client of cluster %s: %w", alias, err)
	}
	return append(all, rest...), nil
}

// Connect is Dial and one answer from a broker. Its error is an [*Error] where
// no broker gave one before ctx ended.
func Connect(ctx context.Context, alias string, properties map[string]string, opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := Dial(alias, properties, opts...)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		err = Explain(client, err)
		client.Close()
		return nil, err
	}
	return client, nil
}

// servers reads bootstrap.servers; Kafka allows a protocol before each, and
// ignores it.
func (p *props) servers() []string {
	const key = "bootstrap.servers"
	var servers []string
	for server := range strings.SplitSeq(p.values[key], ",") {
		server = strings.TrimSpace(server)
		if _, after, ok := strings.Cut(server, "://"); ok {
			server = after
		}
		if server != "" {
			servers = append(servers, server)
		}
	}
	if len(servers) == 0 {
		p.fail(key, "no servers: set host:port")
	}
	return servers
}

// protocol is security.protocol in upper case.
func (p *props) protocol() string {
	protocol := strings.ToUpper(strings.TrimSpace(p.values["security.protocol"]))
	switch protocol {
	case "":
		return "PLAINTEXT"
	case "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
	default:
		p.fail("security.protocol", "set PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
	}
	return protocol
}
