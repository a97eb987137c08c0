package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// RequestMax bounds a certificate request, PEM.
const RequestMax = 8 << 10

// NewRequest makes a key, which stays with the caller, and a request for its
// certificate, PEM. The request has no name: the issuer determines the caller from its
// token.
func NewRequest() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: certificate request: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// ErrRequest is wrapped by every error about a certificate request.
var ErrRequest = errors.New("certificate request")

// ReadRequest returns the key in a request whose sender has proved that it holds the private
// key. All other contents of the request are ignored.
func ReadRequest(raw []byte) (crypto.PublicKey, error) {
	if len(raw) > RequestMax {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrRequest, len(raw), RequestMax)
	}
	block, rest := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, fmt.Errorf("%w: want one PEM block of the type CERTIFICATE REQUEST", ErrRequest)
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		// The key is checked before the signature, because a signature check takes 40 ms with
		// the largest RSA key that fits into a request, and the caller's token is not verified
		// yet.
		return nil, fmt.Errorf("%w: want a key of the curve P-256", ErrRequest)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return key, nil
}
