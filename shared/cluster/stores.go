package cluster

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

// truststore returns the authorities to trust, nil for the system's.
func (p *props) truststore() *x509.CertPool {
	const text, location = "ssl.truststore.certificates", "ssl.truststore.location"
	if value := p.text(text, ""); value != "" {
		return p.pool(text, pemBlocks([]byte(value)), nil)
	}
	path := p.text(location, "")
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		p.fail(location, "%v", err)
		return nil
	}
	const password = "ssl.truststore.password"
	var certs []*x509.Certificate
	switch kind := kindOf(data, p.text("ssl.truststore.type", "JKS")); kind {
	case "PEM":
		return p.pool(location, pemBlocks(data), nil)
	case "PKCS12":
		certs, err = pkcs12.DecodeTrustStore(data, p.values[password])
	case "JKS":
		certs, err = jksTrusted(data, p.values[password])
	default:
		err = fmt.Errorf("type %s cannot be read: convert it to PEM and set ssl.truststore.type = PEM", kind)
	}
	if err != nil {
		p.fail(location, "read %s: %v; is %s.%s right?", path, err, p.alias, password)
		return nil
	}
	return p.pool(location, nil, certs)
}

// pool makes a pool of what a store holds; an empty one would trust nobody.
func (p *props) pool(key string, blocks []*pem.Block, certs []*x509.Certificate) *x509.CertPool {
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			p.fail(key, "read certificate: %v", err)
			return nil
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		p.fail(key, "there is no certificate in it")
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// keystore returns the client's own certificate, nil where none is set.
func (p *props) keystore() *tls.Certificate {
	const key, chain, location = "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.location"
	if value := p.text(key, ""); value != "" {
		return p.pair(key, pemBlocks([]byte(value+"\n"+p.values[chain])))
	}
	path := p.text(location, "")
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		p.fail(location, "%v", err)
		return nil
	}
	const password = "ssl.keystore.password"
	var pair *tls.Certificate
	switch kind := kindOf(data, p.text("ssl.keystore.type", "JKS")); kind {
	case "PEM":
		return p.pair(location, pemBlocks(data))
	case "PKCS12":
		pair, err = pkcs12Pair(data, p.values[password])
	case "JKS":
		keyPassword := p.values["ssl.key.password"]
		if keyPassword == "" {
			keyPassword = p.values[password]
		}
		pair, err = jksPair(data, p.values[password], keyPassword)
	default:
		err = fmt.Errorf("type %s cannot be read: convert it to PEM and set ssl.keystore.type = PEM", kind)
	}
	if err != nil {
		p.fail(location, "read %s: %v; is %s.%s right?", path, err, p.alias, password)
		return nil
	}
	return pair
}

// pair makes a certificate of PEM blocks: one key, and the chain in order.
func (p *props) pair(from string, blocks []*pem.Block) *tls.Certificate {
	var key, chain []byte
	for _, b := range blocks {
		switch {
		case b.Type == "CERTIFICATE":
			chain = append(chain, pem.EncodeToMemory(b)...)
		case b.Type == "ENCRYPTED PRIVATE KEY":
			p.fail(from, "the key is encrypted, which is not supported: decrypt it with openssl pkcs8, or put it into a PKCS12 file")
			return nil
		case strings.HasSuffix(b.Type, "PRIVATE KEY"):
			key = pem.EncodeToMemory(b)
		}
	}
	if key == nil || chain == nil {
		p.fail(from, "there must be a PRIVATE KEY and a CERTIFICATE in it, or in ssl.keystore.certificate.chain")
		return nil
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		p.fail(from, "the key and the certificate do not go together, or one is broken")
		return nil
	}
	return &pair
}

// kindOf tells the type of a store by its first bytes; Java's own loader reads
// JKS and PKCS12 files under either name, too.
func kindOf(data []byte, declared string) string {
	switch {
	case bytes.HasPrefix(data, []byte{0xfe, 0xed, 0xfe, 0xed}):
		return "JKS"
	case bytes.HasPrefix(data, []byte{0xce, 0xce, 0xce, 0xce}):
		return "JCEKS"
	case bytes.HasPrefix(data, []byte{0x30, 0x82}), bytes.HasPrefix(data, []byte{0x30, 0x80}):
		return "PKCS12"
	case bytes.Contains(data, []byte("-----BEGIN ")):
		return "PEM"
	}
	return strings.ToUpper(declared)
}

// pemBlock is PEM on one line as well as on many: a properties file joins lines,
// and Kafka reads them without the breaks.
var pemBlock = regexp.MustCompile(`-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END ([A-Z0-9 ]+)-----`)

func pemBlocks(data []byte) []*pem.Block {
	var blocks []*pem.Block
	for _, m := range pemBlock.FindAllSubmatch(data, -1) {
		body, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(m[2])), ""))
		if err == nil && bytes.Equal(m[1], m[3]) {
			blocks = append(blocks, &pem.Block{Type: string(m[1]), Bytes: body})
		}
	}
	return blocks
}

func loadJKS(data []byte, password string) (keystore.KeyStore, error) {
	ks := keystore.New()
	err := ks.Load(bytes.NewReader(data), []byte(password))
	return ks, err
}

func jksTrusted(data []byte, password string) ([]*x509.Certificate, error) {
	ks, err := loadJKS(data, password)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for _, alias := range ks.Aliases() {
		if !ks.IsTrustedCertificateEntry(alias) {
			continue
		}
		entry, err := ks.GetTrustedCertificateEntry(alias)
		if err != nil {
			return nil, err
		}
		c, err := x509.ParseCertificate(entry.Certificate.Content)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return certs, nil
}

func jksPair(data []byte, password, keyPassword string) (*tls.Certificate, error) {
	ks, err := loadJKS(data, password)
	if err != nil {
		return nil, err
	}
	for _, alias := range ks.Aliases() {
		if !ks.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := ks.GetPrivateKeyEntry(alias, []byte(keyPassword))
		if err != nil {
			return nil, err
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil {
			return nil, err
		}
		pair := &tls.Certificate{PrivateKey: key.(crypto.PrivateKey)}
		for _, c := range entry.CertificateChain {
			pair.Certificate = append(pair.Certificate, c.Content)
		}
		return pair, nil
	}
	return nil, errors.New("there is no private key in it")
}

func pkcs12Pair(data []byte, password string) (*tls.Certificate, error) {
	key, leaf, authorities, err := pkcs12.DecodeChain(data, password)
	if err != nil {
		return nil, err
	}
	pair := &tls.Certificate{PrivateKey: key.(crypto.PrivateKey), Leaf: leaf, Certificate: [][]byte{leaf.Raw}}
	for _, c := range authorities {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, nil
}
