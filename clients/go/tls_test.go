package tidegate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.certificate, a.key, _ = a.sign(t, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	return a
}

// sign completes a template, and signs it with the authority's key, or with its own key if there is none yet.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.key != nil {
		parent, signer = a.certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key, der
}

// issue returns a certificate for loopback, for servers and clients, and its key, as PEM.
func (a *authority) issue(t *testing.T) (certificate, key []byte) {
	t.Helper()
	return a.issueFor(t, net.IPv4(127, 0, 0, 1))
}

// issueFor returns a certificate for an address, and its key, as PEM.
func (a *authority) issueFor(t *testing.T, address net.IP) (certificate, key []byte) {
	t.Helper()
	_, private, der := a.sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		IPAddresses: []net.IP{address},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// credentials returns those of a client that trusts the authority; its certificate is from issuer, unless that is nil.
func (a *authority) credentials(t *testing.T, issuer *authority) credentials.TransportCredentials {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(a.certificate)
	if issuer != nil {
		pair, err := tls.X509KeyPair(issuer.issue(t))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config)
}

func TestCertificatesOfBothSidesAreVerified(t *testing.T) {
	trusted, other := newAuthority(t), newAuthority(t)
	certificate, key := trusted.issue(t)
	clients := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.certificate.Raw})
	folder := t.TempDir()
	arguments := []string{}
	for name, text := range map[string][]byte{"tls-cert": certificate, "tls-key": key, "tls-client-ca": clients} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, "--"+name, path)
	}
	address := serve(t, hundred, arguments...).address
	verified := allow(t, newClient(t, address, WithTLS(trusted.credentials(t, trusted))), Key("user", "a"))
	if verified.Reason != Decided || verified.Remaining != 99 {
		t.Fatalf("%+v", verified)
	}
	const untrusted = "a server of another authority"
	for name, refused := range map[string][]Option{
		untrusted:                        {WithTLS(other.credentials(t, trusted))},
		"a client of another authority":  {WithTLS(trusted.credentials(t, other))},
		"a client without a certificate": {WithTLS(trusted.credentials(t, nil))},
		"a client without TLS":           {},
	} {
		decision := allow(t, newClient(t, address, refused...), Key("user", "a"))
		if decision.Reason != FailedOpen || decision.Failure != "UNAVAILABLE" {
			t.Fatalf("%s: %+v", name, decision)
		}
		if name == untrusted && !strings.Contains(decision.FailureMessage, "unknown authority") {
			t.Fatalf("%+v", decision)
		}
	}
}
