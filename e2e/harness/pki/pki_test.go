package pki_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/e2e/harness/pki"
)

// leaf reads a pair and checks that the key is the certificate's.
func leaf(t *testing.T, p pki.Pair) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func authority(t *testing.T) (*pki.Authority, *x509.CertPool) {
	t.Helper()
	a, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.CA()) {
		t.Fatal("the authority's certificate cannot be read")
	}
	return a, pool
}

func TestServer(t *testing.T) {
	a, ours := authority(t)
	_, others := authority(t)
	pair, err := a.Server("api", []string{"kubernetes"}, []net.IP{net.IPv4(10, 77, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, pair)
	for _, name := range []string{"kubernetes", "10.77.0.1"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: ours, DNSName: name}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: ours, DNSName: "10.77.0.2"}); err == nil {
		t.Error("it is valid for an address that it is not for")
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: others}); err == nil {
		t.Error("another cluster's authority vouches for it")
	}
}

func TestUser(t *testing.T) {
	a, ours := authority(t)
	pair, err := a.User("system:node:node1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, pair)
	if cert.Subject.CommonName != "system:node:node1" || !cmp.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the certificate is for %v", cert.Subject)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: ours, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: ours}); err == nil {
		t.Error("a user's certificate serves")
	}
}

func TestSigning(t *testing.T) {
	private, public, err := pki.Signing()
	if err != nil {
		t.Fatal(err)
	}
	one, _ := pem.Decode(private)
	two, _ := pem.Decode(public)
	if one == nil || two == nil {
		t.Fatal("the keys are not PEM")
	}
	key, err := x509.ParseECPrivateKey(one.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	check, err := x509.ParsePKIXPublicKey(two.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(check.(*ecdsa.PublicKey)) {
		t.Error("the public key is another one's")
	}
}
