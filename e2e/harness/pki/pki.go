// Package pki makes the certificates of the test cluster: one authority, the
// API server's certificate, and one for each user. A user's groups are the
// certificate's organizations, as Kubernetes reads them (X.509 client
// certificates, "Authenticating" in its reference).
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// life is how long certificates hold: longer than anybody keeps a test cluster.
const life = 30 * 24 * time.Hour

// Authority signs the cluster's certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

// New makes an authority.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: authority's key: %w", err)
	}
	t := template(pkix.Name{CommonName: "outrigger test cluster"})
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("pki: authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("pki: authority: %w", err)
	}
	return &Authority{cert: cert, key: key}, nil
}

// CA returns the authority's certificate, PEM.
func (a *Authority) CA() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Server makes the certificate of a server that is called by these names and
// addresses.
func (a *Authority) Server(name string, dns []string, addresses []net.IP) (Pair, error) {
	t := template(pkix.Name{CommonName: name})
	t.DNSNames, t.IPAddresses = dns, addresses
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.sign(t)
}

// User makes the certificate by which a user of these groups is known.
func (a *Authority) User(name string, groups ...string) (Pair, error) {
	t := template(pkix.Name{CommonName: name, Organization: groups})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(t)
}

func (a *Authority) sign(t *x509.Certificate) (Pair, error) {
	name := t.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("pki: key of %s: %w", name, err)
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("pki: certificate of %s: %w", name, err)
	}
	pair := Pair{Cert: encode("CERTIFICATE", der)}
	pair.Key, err = encodeKey(key)
	return pair, err
}

// encodeKey writes a private key as PEM.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("pki: encode a key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

// Signing makes the pair of keys that sign and check ServiceAccount tokens: PEM
// of the private and of the public key.
func Signing() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: encode the public key: %w", err)
	}
	private, err = encodeKey(key)
	return private, encode("PUBLIC KEY", der), err
}

func template(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // crypto/rand never fails
	now := time.Now()
	// A clock that is set back a little does not make them invalid.
	return &x509.Certificate{Subject: subject, SerialNumber: serial, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life)}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
