package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestFromSeed: authorities of the same seed accept each other's certificates, although each
// makes its own authority certificate. Authorities of other seeds do not.
func TestFromSeed(t *testing.T) {
	from := func(job string, first byte) *Authority {
		a, err := FromSeed(job, [ed25519.SeedSize]byte{first}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	key, request, err := NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	public, err := ReadRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := from("a", 1).Certify(public, 3)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert := tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
	if err := Belongs(cert, from("a", 1).CA(), "a", 3); err != nil {
		t.Errorf("another replica's authority: %v", err)
	}
	for what, err := range map[string]error{
		"another seed": Belongs(cert, from("a", 2).CA(), "a", 3),
		"another job":  Belongs(cert, from("b", 1).CA(), "b", 3),
		"another name": Belongs(cert, from("a", 1).CA(), "b", 3),
		"another pod":  Belongs(cert, from("a", 1).CA(), "a", 4),
	} {
		if !errors.Is(err, ErrStranger) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestReadRequest: an input that is not a sidecar's request is refused.
func TestReadRequest(t *testing.T) {
	_, good, err := NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, foreign)
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Clone(block.Bytes)
	forged[len(forged)-1] ^= 1
	form := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for what, raw := range map[string][]byte{
		"nothing":       nil,
		"no PEM":        []byte("request"),
		"another block": form("CERTIFICATE", block.Bytes),
		"two":           append(bytes.Clone(good), good...),
		"no request":    form("CERTIFICATE REQUEST", []byte("request")),
		"forged":        form("CERTIFICATE REQUEST", forged),
		"another curve": form("CERTIFICATE REQUEST", other),
		"too long":      bytes.Repeat([]byte("x"), RequestMax+1),
	} {
		if _, err := ReadRequest(raw); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKeysOfOtherKinds: a request with a kind of key that no sidecar makes is refused before
// its signature is checked.
func TestKeysOfOtherKinds(t *testing.T) {
	of := func(key crypto.Signer, err error) crypto.Signer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	for what, key := range map[string]crypto.Signer{
		"RSA":     of(rsa.GenerateKey(rand.Reader, 2048)),
		"P-224":   of(ecdsa.GenerateKey(elliptic.P224(), rand.Reader)),
		"P-384":   of(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
		"P-521":   of(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)),
		"Ed25519": ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)),
	} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		der[len(der)-1] ^= 1 // with a valid signature, the order of the checks would not show
		_, err = ReadRequest(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "want a key of the curve P-256") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestClocksBehind: a sidecar whose clock is almost an hour behind accepts a certificate that
// was signed just now.
func TestClocksBehind(t *testing.T) {
	a := authority(t, "job", time.Hour)
	_, signed := leaf(t, a, 1)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	for _, behind := range []time.Duration{0, 59 * time.Minute} {
		_, err := signed.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: time.Now().Add(-behind), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			t.Errorf("%v behind: %v", behind, err)
		}
	}
}
