// Package certify obtains a sidecar's certificate from an issuer. The key is generated
// here and never leaves the process; the issuer authenticates the sidecar by a token that
// Kubernetes gives to its pod. The sidecar requests its certificate when it starts, and
// looks up peers' addresses through Addresses.
package certify

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/dns"
)

// Bounds of one attempt.
const (
	tryTime   = 10 * time.Second // bound of one request: the sidecar tries again
	answerMax = 64 << 10         // bytes read of an answer: a certificate has a few KiB
	tokenMax  = 16 << 10         // bytes of a token: Kubernetes makes tokens of 1 to 2 KiB
)

// ErrRefused means that the issuer has refused a certificate for this sidecar: another
// attempt would not change it.
var ErrRefused = errors.New("the issuer refused a certificate")

// RetryLater means that the issuer does not answer now, because this pod has asked too
// often.
type RetryLater struct {
	After time.Duration // before the next request, at most laterMax
	Text  string
}

func (l *RetryLater) Error() string { return l.Text }

// laterMax bounds the delay that an issuer may impose.
const laterMax = time.Minute

// retryLater returns the error of an answer with status 429, and nil for other answers.
func retryLater(resp *http.Response, text []byte) *RetryLater {
	if resp.StatusCode != http.StatusTooManyRequests {
		return nil
	}
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		seconds = 1 // it may be a date, which depends on clocks
	}
	after := min(max(time.Duration(seconds)*time.Second, time.Second), laterMax)
	return &RetryLater{after, fmt.Sprintf("certify: %s: %s", resp.Status, strings.TrimSpace(string(text)))}
}

// Applicant is a sidecar that requests a certificate.
type Applicant struct {
	issuer  *bootstrap.Issuer
	client  *http.Client
	key     crypto.PrivateKey
	request []byte
}

// New generates a key, and a request for its certificate.
func New(issuer *bootstrap.Issuer) (*Applicant, error) {
	client, err := connect(issuer)
	if err != nil {
		return nil, err
	}
	key, request, err := pki.NewRequest()
	return &Applicant{issuer, client, key, request}, err
}

// Obtain asks the issuer once. An error that wraps ErrRefused is final. All others may be
// temporary: the issuer does not run, is being replaced or is overloaded, or the token
// has expired because the kubelet could not reach the API server for a new one.
func (a *Applicant) Obtain(ctx context.Context) (tls.Certificate, error) {
	raw, err := ask(ctx, a.client, a.issuer, a.request)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: a.key}, nil
}

// connect returns a client that trusts only the issuer's authority, and follows no
// redirects: the token is only for the issuer.
func connect(issuer *bootstrap.Issuer) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(issuer.CA)) {
		return nil, errors.New("certify: tls.issuer.ca of the job document has no certificate")
	}
	names := new(dns.Resolver)
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return names.Dial(ctx, address) }
	return &http.Client{
		Timeout:       tryTime,
		Transport:     &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// authorize adds the token to a request. It reads the file each time: the kubelet renews
// the token.
func authorize(r *http.Request, issuer *bootstrap.Issuer) error {
	token, err := os.ReadFile(issuer.TokenFile)
	if err != nil {
		return fmt.Errorf("certify: %w", err)
	}
	if len(token) > tokenMax {
		return fmt.Errorf("certify: %s has %d bytes, want a token of at most %d", issuer.TokenFile, len(token), tokenMax)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

// do sends a request. An issuer to which an address connects too often ends the
// handshake; TLS reports that only as an internal error.
func do(client *http.Client, r *http.Request) (*http.Response, error) {
	resp, err := client.Do(r)
	if err != nil && strings.Contains(err.Error(), "remote error: tls: internal error") {
		err = fmt.Errorf("%w: the issuer refuses the handshake: this pod's address has connected too often in the last seconds, or the issuer has no certificate of its own; its log says which (--log-level=debug of the operator)", err)
	}
	return resp, err
}

// ask makes one attempt.
func ask(ctx context.Context, client *http.Client, issuer *bootstrap.Issuer, request []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, issuer.URL, bytes.NewReader(request))
	if err != nil {
		return nil, fmt.Errorf("certify: %w", err)
	}
	if err := authorize(r, issuer); err != nil {
		return nil, err
	}
	resp, err := do(client, r)
	if err != nil {
		return nil, fmt.Errorf("certify: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	switch {
	case err != nil:
		return nil, fmt.Errorf("certify: %w", err)
	case resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusBadRequest:
		return nil, fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(string(text)))
	case resp.StatusCode == http.StatusTooManyRequests:
		return nil, retryLater(resp, text)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("certify: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("certify: the answer is not a certificate")
	}
	return block.Bytes, nil
}
