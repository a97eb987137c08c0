// Package certify gets a sidecar its certificate from an issuer. The key is made
// here and never leaves the process; who the sidecar is, the issuer finds out by
// a token that Kubernetes gives to its pod.
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

// Bounds of one try.
const (
	tryTime   = 10 * time.Second
	answerMax = 64 << 10
	tokenMax  = 16 << 10
)

// ErrRefused is wrapped when the issuer says that there is no certificate for
// this sidecar: another try will not change it.
var ErrRefused = errors.New("the issuer refused a certificate")

// Later is why the issuer has no answer now: this pod has asked too often.
type Later struct {
	After time.Duration // before the next question, at most laterMax
	Text  string
}

func (l *Later) Error() string { return l.Text }

// laterMax bounds how long an issuer may have a sidecar wait.
const laterMax = time.Minute

// later is what an answer of 429 says; nil: it is another one.
func later(resp *http.Response, text []byte) *Later {
	if resp.StatusCode != http.StatusTooManyRequests {
		return nil
	}
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		seconds = 1 // it may say a date, which depends on clocks
	}
	after := min(max(time.Duration(seconds)*time.Second, time.Second), laterMax)
	return &Later{after, fmt.Sprintf("certify: %s: %s", resp.Status, strings.TrimSpace(string(text)))}
}

// Applicant is a sidecar that wants a certificate.
type Applicant struct {
	issuer  *bootstrap.Issuer
	client  *http.Client
	key     crypto.PrivateKey
	request []byte
}

// New makes a key, and a request for its certificate.
func New(issuer *bootstrap.Issuer) (*Applicant, error) {
	client, err := connect(issuer)
	if err != nil {
		return nil, err
	}
	key, request, err := pki.NewRequest()
	return &Applicant{issuer, client, key, request}, err
}

// Obtain asks the issuer once. Of the errors one that wraps ErrRefused is final. All
// others may pass: the issuer is away, is being replaced, has too much to do, or the token
// has run out because the API server, from which the kubelet has tokens, was away.
func (a *Applicant) Obtain(ctx context.Context) (tls.Certificate, error) {
	raw, err := ask(ctx, a.client, a.issuer, a.request)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: a.key}, nil
}

// connect makes a client that trusts the issuer's authority alone, and goes
// nowhere else: the token is for nobody but the issuer.
func connect(issuer *bootstrap.Issuer) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(issuer.CA)) {
		return nil, errors.New("certify: no certificate in tls.issuer.ca")
	}
	names := new(dns.Resolver)
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return names.Dial(ctx, address) }
	return &http.Client{
		Timeout:       tryTime,
		Transport:     &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// show puts the token into a request. It is read each time: the kubelet makes it anew.
func show(r *http.Request, issuer *bootstrap.Issuer) error {
	token, err := os.ReadFile(issuer.TokenFile)
	if err != nil {
		return fmt.Errorf("certify: %w", err)
	}
	if len(token) > tokenMax {
		return fmt.Errorf("certify: %s has %d bytes, want a token", issuer.TokenFile, len(token))
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

// do sends a request. An issuer to which an address connects too often ends the handshake, for
// which TLS has no better word than an internal error.
func do(client *http.Client, r *http.Request) (*http.Response, error) {
	resp, err := client.Do(r)
	if err != nil && strings.Contains(err.Error(), "remote error: tls: internal error") {
		err = fmt.Errorf("%w: the issuer refuses the handshake: this pod's address has connected too often in the last seconds, or the issuer has no certificate of its own; its log says which (--log-level=debug of the operator)", err)
	}
	return resp, err
}

// ask makes one try.
func ask(ctx context.Context, client *http.Client, issuer *bootstrap.Issuer, request []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, issuer.URL, bytes.NewReader(request))
	if err != nil {
		return nil, fmt.Errorf("certify: %w", err)
	}
	if err := show(r, issuer); err != nil {
		return nil, err
	}
	resp, err := do(client, r)
	if err != nil {
		return nil, fmt.Errorf("certify: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	switch {
	case err != nil:
		return nil, fmt.Errorf("certify: %w", err)
	case resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusBadRequest:
		return nil, fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(string(text)))
	case resp.StatusCode == http.StatusTooManyRequests:
		return nil, later(resp, text)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("certify: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("certify: the answer is no certificate")
	}
	return block.Bytes, nil
}
