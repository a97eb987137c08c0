// Package pki makes the certificates of one job: an authority of its own and a leaf
// certificate for each sidecar. Sidecars of other jobs have another authority and are refused.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Authority signs the leaf certificates of one job.
type Authority struct {
	job  string
	cert *x509.Certificate
	key  crypto.Signer
	life time.Duration
}

// Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// New makes the authority of a job. Its certificates are valid for the duration life.
func New(job string, life time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return newAuthority(job, key, life)
}

// FromSeed makes the authority of a job. Its key is a function of a secret seed: every
// holder of the seed can make the authority again, and the certificate of one copy
// verifies what another copy has signed.
func FromSeed(job string, seed [ed25519.SeedSize]byte, life time.Duration) (*Authority, error) {
	return newAuthority(job, ed25519.NewKeyFromSeed(seed[:]), life)
}

func newAuthority(job string, key crypto.Signer, life time.Duration) (*Authority, error) {
	t := template(life)
	t.Subject = pkix.Name{CommonName: "outrigger job " + job}
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("pki: authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("pki: authority: %w", err)
	}
	return &Authority{job: job, cert: cert, key: key, life: life}, nil
}

// skew is how far a clock may be behind the signer's: a node with a wrong clock would
// otherwise reject every certificate as not valid yet. The keys are new, so no valid
// certificate of such a key exists for the hour before.
const skew = time.Hour

func template(life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // crypto/rand never fails
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-skew), NotAfter: now.Add(life)}
}

// CA returns the authority's certificate, PEM.
func (a *Authority) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Leaf makes a key and a certificate for the sidecar of a pod.
func (a *Authority) Leaf(pod int) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("pki: %w", err)
	}
	cert, err := a.Certify(&key.PublicKey, pod)
	if err != nil {
		return Pair{}, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("pki: key of pod %d: %w", pod, err)
	}
	return Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})}, nil
}

// Certify makes the certificate, PEM, of the sidecar of a pod for the sidecar's own key.
func (a *Authority) Certify(key crypto.PublicKey, pod int) ([]byte, error) {
	t := template(a.life)
	t.Subject = pkix.Name{CommonName: "pod " + strconv.Itoa(pod)}
	t.URIs = []*url.URL{Identity(a.job, pod)}
	cert, err := a.sign(t, key)
	if err != nil {
		return nil, fmt.Errorf("pki: leaf of pod %d: %w", pod, err)
	}
	return cert, nil
}

// Host makes the certificate, PEM, of a server with the given host name.
func (a *Authority) Host(key crypto.PublicKey, host string) ([]byte, error) {
	t := template(a.life)
	t.Subject = pkix.Name{CommonName: host}
	t.DNSNames = []string{host}
	cert, err := a.sign(t, key)
	if err != nil {
		return nil, fmt.Errorf("pki: certificate of %s: %w", host, err)
	}
	return cert, nil
}

func (a *Authority) sign(t *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Identity returns the name in a leaf certificate: outrigger://job/<id>/pod/<n>. The id is one
// segment for any content, so that no id can look like a pod of another job.
func Identity(job string, pod int) *url.URL {
	end := "/pod/" + strconv.Itoa(pod)
	return &url.URL{Scheme: "outrigger", Host: "job", Path: "/" + job + end, RawPath: "/" + url.PathEscape(job) + end}
}

// ErrStranger is the error for a certificate that does not belong to a sidecar of this job.
var ErrStranger = errors.New("not a sidecar of this job")

// PodOf returns the pod in a verified leaf certificate of the job.
func PodOf(cert *x509.Certificate, job string) (int, error) {
	for _, u := range cert.URIs {
		if rest, ok := strings.CutPrefix(u.String(), "outrigger://job/"+url.PathEscape(job)+"/pod/"); ok {
			if n, err := strconv.Atoi(rest); err == nil && n >= 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: certificate %q names no pod of job %s", ErrStranger, cert.Subject.CommonName, job)
}

// Belongs checks that a certificate is that of a pod of the job, signed by the job's
// authority. All peers would refuse another certificate without giving the reason.
func Belongs(cert tls.Certificate, ca []byte, job string, pod int) error {
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("%w: the certificate is of another authority than the job document's: %w", ErrStranger, err)
	}
	n, err := PodOf(leaf, job)
	if err == nil && n != pod {
		err = fmt.Errorf("%w: the certificate is that of pod %d, and this is pod %d", ErrStranger, n, pod)
	}
	return err
}

// Config loads one sidecar's credentials from files and calls ConfigOf.
func Config(caFile, certFile, keyFile string) (*tls.Config, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return ConfigOf(ca, caFile, cert)
}

// ConfigOf returns the TLS configuration of one sidecar for both roles: TLS 1.3, and both
// sides are authenticated only by the job's authority, whose certificate is ca (PEM), read
// from where. The names in certificates are not host names but identities, which the caller
// checks (PodOf).
func ConfigOf(ca []byte, where string, cert tls.Certificate) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("pki: no certificate in %s", where)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		// The chain is verified below against the job's authority. Only the comparison with a
		// host name is left out.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return fmt.Errorf("%w: no certificate", ErrStranger)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if err != nil {
				return fmt.Errorf("%w: %w", ErrStranger, err)
			}
			return nil
		},
	}, nil
}
