package cluster_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/cluster"
)

const (
	stores   = "testdata/stores/"
	password = `p"w;d=1`
	jaas     = `org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\"w;d=1";`
)

// broker starts a one-broker cluster and returns its address.
func broker(t *testing.T, opts ...kfake.Opt) string {
	t.Helper()
	return brokers(t, opts...).ListenAddrs()[0]
}

func brokers(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// refusing answers the SASL handshake with an error, as Kafka does and kfake
// does not.
func refusing(t *testing.T, answer *kerr.Error) string {
	t.Helper()
	c := brokers(t, kfake.EnableSASL())
	c.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.ErrorCode = answer.Code
		return resp, nil, true
	})
	return c.ListenAddrs()[0]
}

func serverTLS(t *testing.T, file string) *tls.Config {
	t.Helper()
	data, err := os.ReadFile(stores + file)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

// connect tries for a short time.
func connect(t *testing.T, alias string, properties map[string]string, opts ...kgo.Opt) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	c, err := cluster.Connect(ctx, alias, properties, opts...)
	if err == nil {
		c.Close()
	}
	return err
}

func with(properties map[string]string, more ...string) map[string]string {
	properties = maps.Clone(properties)
	for i := 0; i < len(more); i += 2 {
		properties[more[i]] = more[i+1]
	}
	return properties
}

func TestConnectsWithEveryProtocol(t *testing.T) {
	secure := kfake.TLS(serverTLS(t, "server.pem"))
	saslUsers := []kfake.Opt{
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", password),
		kfake.Superuser("SCRAM-SHA-256", "u", password), kfake.Superuser("PLAIN", "u", password),
	}
	ca, err := os.ReadFile(stores + "ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	plainJAAS := strings.ReplaceAll(jaas, "scram.Scram", "plain.Plain")
	for name, c := range map[string]struct {
		broker     []kfake.Opt
		properties map[string]string
	}{
		"plaintext": {nil, map[string]string{}},
		"TLS, truststore PEM": {[]kfake.Opt{secure}, map[string]string{
			"security.protocol": "ssl", "ssl.truststore.location": stores + "ca.pem", "ssl.truststore.type": "PEM",
		}},
		"TLS, truststore PEM of undeclared type": {[]kfake.Opt{secure}, map[string]string{
			"security.protocol": "SSL", "ssl.truststore.location": stores + "ca.pem",
		}},
		"TLS, truststore JKS": {[]kfake.Opt{secure}, map[string]string{
			"security.protocol": "SSL", "ssl.truststore.location": stores + "truststore.jks", "ssl.truststore.password": "changeit",
		}},
		"TLS, truststore PKCS12": {[]kfake.Opt{secure}, map[string]string{
			"security.protocol": "SSL", "ssl.truststore.location": stores + "truststore.p12", "ssl.truststore.password": "changeit",
		}},
		"TLS, certificates as text on one line": {[]kfake.Opt{secure}, map[string]string{
			"security.protocol": "SSL", "ssl.truststore.certificates": strings.ReplaceAll(string(ca), "\n", " "),
		}},
		"TLS, only 1.2": {[]kfake.Opt{secure}, map[string]string{
			"security.protocol": "SSL", "ssl.truststore.location": stores + "ca.pem", "ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1",
		}},
		"TLS, name not checked": {[]kfake.Opt{kfake.TLS(serverTLS(t, "othername.pem"))}, map[string]string{
			"security.protocol": "SSL", "ssl.truststore.location": stores + "ca.pem", "ssl.endpoint.identification.algorithm": "",
		}},
		"PLAIN": {saslUsers, map[string]string{
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": plainJAAS,
		}},
		"SCRAM-SHA-256": {saslUsers, map[string]string{
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas,
		}},
		"SCRAM-SHA-512 over TLS": {append([]kfake.Opt{secure}, saslUsers...), map[string]string{
			"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas, "ssl.truststore.location": stores + "ca.pem",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := "SASL_SSL://" + broker(t, c.broker...) + ", "
			if err := connect(t, "A", with(c.properties, "bootstrap.servers", servers)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestShowsItsOwnCertificate(t *testing.T) {
	config := serverTLS(t, "server.pem")
	ca, err := os.ReadFile(stores + "ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	config.ClientCAs = x509.NewCertPool()
	config.ClientCAs.AppendCertsFromPEM(ca)
	config.ClientAuth = tls.RequireAndVerifyClientCert
	address := broker(t, kfake.TLS(config))
	own, err := os.ReadFile(stores + "server.pem")
	if err != nil {
		t.Fatal(err)
	}
	key, chain, _ := strings.Cut(string(own), "-----BEGIN CERTIFICATE")
	base := map[string]string{"bootstrap.servers": address, "security.protocol": "SSL", "ssl.truststore.location": stores + "ca.pem"}
	for name, properties := range map[string]map[string]string{
		"JKS":    {"ssl.keystore.location": stores + "keystore.jks", "ssl.keystore.password": "changeit", "ssl.key.password": "keypass12"},
		"PKCS12": {"ssl.keystore.location": stores + "keystore.p12", "ssl.keystore.password": "changeit"},
		"PEM":    {"ssl.keystore.location": stores + "server.pem", "ssl.keystore.type": "PEM"},
		"text":   {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain},
	} {
		t.Run(name, func(t *testing.T) {
			properties = maps.Clone(properties)
			maps.Copy(properties, base)
			if err := connect(t, "A", properties); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("without one the error says so", func(t *testing.T) {
		wantError(t, connect(t, "A", base), address, "SSL", "client certificate", "A.ssl.keystore.location")
	})
}

// wantError checks that an error names the cluster and all of parts, and no secret.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q: %v", part, err)
		}
	}
	if !strings.Contains(err.Error(), "cluster A") {
		t.Errorf("the error does not name the cluster: %v", err)
	}
	for _, secret := range []string{password, `p\"w`, "changeit", "wrong-pw", "BEGIN"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error holds a secret: %v", err)
		}
	}
}

func TestErrorsNameClusterHostProtocolAndCause(t *testing.T) {
	plain := broker(t)
	secure := broker(t, kfake.TLS(serverTLS(t, "server.pem")))
	other := broker(t, kfake.TLS(serverTLS(t, "othername.pem")))
	login := broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", password))
	trust := map[string]string{"security.protocol": "SSL", "ssl.truststore.location": stores + "ca.pem"}
	scram := map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
	closed := closedPort(t)
	for name, c := range map[string]struct {
		server     string
		properties map[string]string
		want       []string
	}{
		"TLS on a plain port":                       {plain, trust, []string{plain, "over SSL", "A.security.protocol"}},
		"TLS and SASL on a plain port":              {login, with(scram, "security.protocol", "SASL_SSL"), []string{login, "SASL_SSL (SCRAM-SHA-512)", "A.security.protocol"}},
		"plain on a TLS port":                       {secure, map[string]string{}, []string{secure, "PLAINTEXT", "TLS"}},
		"plain on a port of Kafka's that wants TLS": {alertingPort(t), scram, []string{"speaks TLS", "A.security.protocol be SASL_SSL"}},
		"SASL without TLS on a TLS port":            {secure, scram, []string{secure, "SASL_PLAINTEXT", "A.security.protocol = SASL_SSL"}},
		"plain where SASL is wanted":                {login, map[string]string{}, []string{login, "SASL (A.security.protocol)"}},
		"wrong password": {
			login, with(scram, "sasl.jaas.config", strings.ReplaceAll(jaas, "w;d=1", "wrong-pw")),
			[]string{login, "user name or password", "A.sasl.jaas.config"},
		},
		"mechanism the broker lacks":   {refusing(t, kerr.UnsupportedSaslMechanism), scram, []string{"SCRAM-SHA-512", "A.sasl.mechanism"}},
		"no SASL on the port":          {refusing(t, kerr.IllegalSaslState), scram, []string{"A.security.protocol"}},
		"certificate for another name": {other, trust, []string{other, "other names", "A.ssl.endpoint.identification.algorithm"}},
		"certificate of an unknown authority": {
			secure,
			map[string]string{"security.protocol": "SSL"},
			[]string{secure, "A.ssl.truststore.location"},
		},
		"nobody there":  {closed, map[string]string{}, []string{closed, "PLAINTEXT", "nothing listens"}},
		"unknown host":  {"no-such-host.invalid:9092", map[string]string{}, []string{"no-such-host.invalid:9092", "host name"}},
		"silent server": {silentPort(t), trust, []string{"does not answer a TLS handshake"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := connect(t, "A", with(c.properties, "bootstrap.servers", c.server, "socket.connection.setup.timeout.ms", "500"))
			wantError(t, err, c.want...)
			if _, ok := errors.AsType[*cluster.Error](err); !ok {
				t.Errorf("got a %T, want a *cluster.Error: %v", err, err)
			}
			if _, network := errors.AsType[net.Error](err); !network && !errors.Is(err, io.EOF) && !errors.Is(err, context.DeadlineExceeded) && !cluster.Refused(err) {
				t.Errorf("got %v, which is neither of the network nor refused", err)
			}
			t.Log(err)
		})
	}
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	base := map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SSL"}
	for name, c := range map[string]struct {
		properties map[string]string
		want       string
	}{
		"missing truststore":        {with(base, "ssl.truststore.location", "[CHANGEME!!!]"), "A.ssl.truststore.location: open [CHANGEME!!!]"},
		"wrong truststore password": {with(base, "ssl.truststore.location", stores+"truststore.jks", "ssl.truststore.password", "wrong-pw"), "A.ssl.truststore.password"},
		"wrong PKCS12 password":     {with(base, "ssl.truststore.location", stores+"truststore.p12", "ssl.truststore.password", "wrong-pw"), "A.ssl.truststore.password"},
		"wrong key password":        {with(base, "ssl.keystore.location", stores+"keystore.jks", "ssl.keystore.password", "changeit", "ssl.key.password", "wrong-pw"), "A.ssl.keystore.location"},
		"encrypted key":             {with(base, "ssl.keystore.location", stores+"encrypted.pem"), "openssl pkcs8"},
		"truststore without any":    {with(base, "ssl.truststore.certificates", "x"), "there is no certificate"},
		"old TLS":                   {with(base, "ssl.enabled.protocols", "TLSv1"), "TLSv1.2"},
		"unknown cipher":            {with(base, "ssl.cipher.suites", "TLS_NONE"), "A.ssl.cipher.suites"},
		"no semicolon": {
			with(base, "security.protocol", "SASL_SSL", "sasl.mechanism", "PLAIN", "sasl.jaas.config", strings.TrimSuffix(jaas, ";")),
			"semicolon",
		},
		"Kerberos":       {with(base, "security.protocol", "SASL_SSL"), "GSSAPI is not supported"},
		"no credentials": {with(base, "security.protocol", "SASL_SSL", "sasl.mechanism", "AWS_MSK_IAM"), "credentials of AWS"},
		"no servers":     {with(base, "bootstrap.servers", " , "), "A.bootstrap.servers"},
		"not a number":   {with(base, "request.timeout.ms", "soon"), "A.request.timeout.ms"},
		"no codec":       {with(base, "compression.type", "rar"), "A.compression.type"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cluster.Dial("A", c.properties)
			wantError(t, err, c.want)
		})
	}
}

func TestCredentialsOfAWSAreAskedForByIAMAlone(t *testing.T) {
	asked := false
	credentials := cluster.WithCredentials(func(context.Context) (cluster.Credentials, error) {
		asked = true
		return cluster.Credentials{}, errors.New("no role here")
	})
	address := broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", password))
	properties := map[string]string{"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
	if err := connect(t, "A", properties, credentials); err != nil || asked {
		t.Errorf("SCRAM: got error %v, asked %v", err, asked)
	}
	c, err := cluster.Dial("A", map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, credentials)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestSettingsReachTheClient(t *testing.T) {
	c, err := cluster.Dial("A", map[string]string{
		"bootstrap.servers": "a:1", "client.id": "mine|A->B|mirrorless|source-admin", "connections.max.idle.ms": "540000",
		"request.timeout.ms": "12000", "metadata.max.age.ms": "1000", "max.request.size": "5242880", "isolation.level": "read_committed",
		"fetch.max.bytes": "1048576", "compression.type": "zstd", "linger.ms": "100",
	}, kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, check := range map[string]struct{ got, want any }{
		"client id":    {c.OptValue(kgo.ClientID), "mine|A->B|mirrorless|source-admin"},
		"idle":         {c.OptValue(kgo.ConnIdleTimeout), 30 * time.Second},
		"timeout":      {c.OptValue(kgo.RequestTimeoutOverhead), 12 * time.Second},
		"metadata age": {c.OptValue(kgo.MetadataMaxAge), time.Second},
		"batch size":   {c.OptValue(kgo.ProducerBatchMaxBytes), int32(5242880)},
		"isolation":    {c.OptValue(kgo.FetchIsolationLevel), int8(1)},
		"fetch size":   {c.OptValue(kgo.FetchMaxBytes), int32(1048576)},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %v want %v", name, check.got, check.want)
		}
	}
}

// alertingPort answers anything with the alert that Kafka sends to a client that
// does not speak TLS.
func alertingPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte{21, 3, 3, 0, 2, 2, 80})
			go io.Copy(io.Discard, conn)
		}
	}()
	return l.Addr().String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

// silentPort accepts connections and reads, and never answers.
func silentPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn)
		}
	}()
	return l.Addr().String()
}
