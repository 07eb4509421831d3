package stories_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

// authority is a certificate authority of one test, with a folder for its files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// identity is a certificate and its key.
type identity struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue signs a certificate for a DNS name or an IP address, good until then.
func (a *authority) issue(t testing.TB, name string, until time.Time) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return identity{cert, key}
}

// file writes a file beside the authority's others and returns its path.
func (a *authority) file(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// truststores are the authority as people hand it on: PEM, JKS and PKCS12.
func (a *authority) truststores(t testing.TB, password string) (inPEM, inJKS, inPKCS12 string) {
	t.Helper()
	jks := keystore.New()
	entry := keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: keystore.Certificate{Type: "X509", Content: a.cert.Raw}}
	if err := jks.SetTrustedCertificateEntry("ca", entry); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := jks.Store(&b, []byte(password)); err != nil {
		t.Fatal(err)
	}
	p12, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{a.cert}, password)
	if err != nil {
		t.Fatal(err)
	}
	return a.file(t, "ca.pem", certPEM(a.cert)), a.file(t, "truststore.jks", b.Bytes()), a.file(t, "truststore.p12", p12)
}

// keystorePEM is a key and its chain in one file, as KIP-651 has them.
func (a *authority) keystorePEM(t testing.TB, name string, id identity) string {
	t.Helper()
	der := pkcs8(t, id)
	data := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return a.file(t, name, append(data, append(certPEM(id.cert), certPEM(a.cert)...)...))
}

// keystoreJKS is what keytool makes.
func (a *authority) keystoreJKS(t testing.TB, name string, id identity, password, keyPassword string) string {
	t.Helper()
	jks := keystore.New()
	chain := []keystore.Certificate{{Type: "X509", Content: id.cert.Raw}, {Type: "X509", Content: a.cert.Raw}}
	entry := keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: pkcs8(t, id), CertificateChain: chain}
	if err := jks.SetPrivateKeyEntry("own", entry, []byte(keyPassword)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := jks.Store(&b, []byte(password)); err != nil {
		t.Fatal(err)
	}
	return a.file(t, name, b.Bytes())
}

// keystorePKCS12 is what openssl pkcs12 -export makes.
func (a *authority) keystorePKCS12(t testing.TB, name string, id identity, password string) string {
	t.Helper()
	data, err := pkcs12.Modern.Encode(id.key, id.cert, []*x509.Certificate{a.cert}, password)
	if err != nil {
		t.Fatal(err)
	}
	return a.file(t, name, data)
}

func pkcs8(t testing.TB, id identity) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(id.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
