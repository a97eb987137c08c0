package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Paths at which every API server publishes the keys that sign the tokens of service
// accounts (OpenID Connect Discovery 1.0, section 4; Kubernetes 1.21 and newer). They
// are read from the API server itself and not from jwks_uri, which is for clients
// outside of the cluster.
const (
	pathDiscovery = "/.well-known/openid-configuration"
	pathKeys      = "/openid/v1/jwks"
)

// keysAge is how long published keys are used without reading them again; it bounds the
// use of a withdrawn key. lookPause is the minimum time between two reads, so that
// forged tokens with unknown keys cost almost nothing.
const (
	keysAge   = 10 * time.Minute
	lookPause = 10 * time.Second
	lookTime  = 5 * time.Second
)

// signedBy are the algorithms with which Kubernetes signs tokens. All are asymmetric: a
// published key cannot sign.
var signedBy = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// Reasons why published keys do not decide about a token.
var (
	// errUnjudged: there are no published keys.
	errUnjudged = errors.New("no published keys judge this token")
	// errStrange: the keys are of another issuer, or do not include the token's key, or
	// the token is not valid at this time (it may be by the API server's clock).
	errStrange = errors.New("the published keys do not judge this token")
)

// Signatures verifies tokens with the keys that the API server publishes: one read for
// all pods, instead of a TokenReview for each. It does not check that the pod exists,
// as a TokenReview does; the caller has to.
type Signatures struct {
	Fetch func(ctx context.Context, path string) ([]byte, error) // reads a path of the API server
	Now   func() time.Time

	mu     sync.Mutex // held during a read: other callers wait for its end
	issuer string
	keys   jose.JSONWebKeySet
	known  time.Time // time of the last successful read
	looked time.Time
}

// claims are the claims in a token of a service account.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace string `json:"namespace"`
		Pod       struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// caller returns the pod that a token was issued to. The error is a refusal, or wraps
// errUnjudged or errStrange.
func (s *Signatures) caller(ctx context.Context, token string) (*caller, error) {
	parsed, err := jwt.ParseSigned(token, signedBy)
	if err != nil {
		return nil, foreign(err)
	}
	hint := new(jwt.Claims)
	if err := parsed.UnsafeClaimsWithoutVerification(hint); err != nil {
		return nil, foreign(err)
	}
	key, err := s.key(ctx, hint.Issuer, &parsed.Headers[0]) // a compact token has one header
	if err != nil {
		return nil, err
	}
	said := new(claims)
	if err := parsed.Claims(key, said); err != nil {
		return nil, foreign(err)
	}
	return said.judge(s.Now())
}

// judge checks the claims of a token with a valid signature and a known issuer.
func (c *claims) judge(now time.Time) (*caller, error) {
	if c.Expiry == nil {
		return nil, foreign(errors.New("it never expires"))
	}
	if err := c.Validate(jwt.Expected{AnyAudience: jwt.Audience{names.TokenAudience}, Time: now}); err != nil {
		if errors.Is(err, jwt.ErrExpired) || errors.Is(err, jwt.ErrNotValidYet) || errors.Is(err, jwt.ErrIssuedInTheFuture) {
			return nil, fmt.Errorf("%w: %w", errStrange, err)
		}
		return nil, foreign(err)
	}
	namespace, _, ok := strings.Cut(strings.TrimPrefix(c.Subject, accountPrefix), ":")
	pod := c.Kubernetes.Pod
	if !ok || !strings.HasPrefix(c.Subject, accountPrefix) || namespace != c.Kubernetes.Namespace || pod.Name == "" || pod.UID == "" {
		return nil, unbound(c.Subject)
	}
	return &caller{namespace, pod.Name, pod.UID}, nil
}

// key returns the published key that a token names.
func (s *Signatures) key(ctx context.Context, issuer string, h *jose.Header) (*jose.JSONWebKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	fresh := now.Sub(s.known) < keysAge
	if key := s.find(issuer, h); key != nil && fresh {
		return key, nil
	}
	if now.Sub(s.looked) < lookPause {
		if fresh {
			return nil, fmt.Errorf("%w: key %q of %q", errStrange, h.KeyID, issuer)
		}
		return nil, errUnjudged
	}
	s.looked = now
	if err := s.fetchKeys(ctx); err != nil {
		if fresh {
			return nil, fmt.Errorf("%w: %w", errStrange, err)
		}
		return nil, fmt.Errorf("%w: %w", errUnjudged, err)
	}
	s.known = now
	if key := s.find(issuer, h); key != nil {
		return key, nil
	}
	return nil, fmt.Errorf("%w: key %q of %q", errStrange, h.KeyID, issuer)
}

func (s *Signatures) find(issuer string, h *jose.Header) *jose.JSONWebKey {
	if issuer != s.issuer || issuer == "" || h.KeyID == "" {
		return nil
	}
	for i := range s.keys.Keys {
		k := &s.keys.Keys[i]
		if k.KeyID == h.KeyID && k.IsPublic() && k.Valid() && (k.Algorithm == "" || k.Algorithm == h.Algorithm) {
			return k
		}
	}
	return nil
}

// fetchKeys reads the keys that the API server publishes now.
func (s *Signatures) fetchKeys(ctx context.Context) error {
	// The caller may cancel its request; the keys are for all callers.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	var discovered struct {
		Issuer string `json:"issuer"`
	}
	var keys jose.JSONWebKeySet
	for _, from := range []struct {
		path string
		into any
	}{{pathDiscovery, &discovered}, {pathKeys, &keys}} {
		text, err := s.Fetch(ctx, from.path)
		if err != nil {
			return fmt.Errorf("%s: %w", from.path, err)
		}
		if err := json.Unmarshal(text, from.into); err != nil {
			return fmt.Errorf("%s: %w", from.path, err)
		}
	}
	s.issuer, s.keys = discovered.Issuer, keys
	return nil
}

// foreign returns the refusal of a token that is not valid for sidecars.
func foreign(cause error) error {
	return refuse(http.StatusUnauthorized, "the token is not one for %s: %v", names.TokenAudience, cause)
}

// unbound returns the refusal of a token that was not issued to a pod.
func unbound(user string) error {
	return refuse(http.StatusForbidden, "the token of %s is not bound to a pod", user)
}
