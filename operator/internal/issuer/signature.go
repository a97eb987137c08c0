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

// Where every API server publishes who signs the tokens of service accounts
// (OpenID Connect Discovery 1.0, section 4; Kubernetes 1.21 and newer). Its own
// address is asked, whatever jwks_uri says: that is for who is outside.
const (
	pathDiscovery = "/.well-known/openid-configuration"
	pathKeys      = "/openid/v1/jwks"
)

// How long published keys are believed without another look, which bounds how
// long a key that was withdrawn is of use, and the pause between two looks, so
// that tokens of strangers with made-up keys cost next to nothing.
const (
	keysAge   = 10 * time.Minute
	lookPause = 10 * time.Second
	lookTime  = 5 * time.Second
)

// signedBy are the algorithms with which Kubernetes signs tokens, all of them
// asymmetric: a published key cannot sign.
var signedBy = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// Why published keys do not decide about a token.
var (
	// errUnjudged: there are none.
	errUnjudged = errors.New("no published keys judge this token")
	// errStrange: they are another issuer's, or the token's key is not among them,
	// or its time is not now: by the API server's clock it may be.
	errStrange = errors.New("the published keys do not judge this token")
)

// Signatures judges tokens by the keys that the API server publishes: one look
// for all pods, where a TokenReview is a call for each. It knows nothing of pods;
// whoever asks it looks for the pod, as a TokenReview does.
type Signatures struct {
	Fetch func(ctx context.Context, path string) ([]byte, error) // of the API server
	Now   func() time.Time

	mu     sync.Mutex // held during a look: others wait for its end
	issuer string
	keys   jose.JSONWebKeySet
	known  time.Time // the last look that found them
	looked time.Time
}

// claims are what a token of a service account says.
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

// caller is the pod that a token was given to. The error is a refusal, or wraps
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
	key, err := s.key(ctx, hint.Issuer, &parsed.Headers[0]) // compact tokens have one
	if err != nil {
		return nil, err
	}
	said := new(claims)
	if err := parsed.Claims(key, said); err != nil {
		return nil, foreign(err)
	}
	return said.judge(s.Now())
}

// judge decides about claims whose signature is good, and whose issuer is.
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

// key is the published one that a token names.
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
	if err := s.look(ctx); err != nil {
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

// look reads what the API server publishes now.
func (s *Signatures) look(ctx context.Context) error {
	// Who asks may hang up; the answer is for all.
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

// foreign refuses what is no valid token for us.
func foreign(cause error) error {
	return refuse(http.StatusUnauthorized, "the token is not one for %s: %v", names.TokenAudience, cause)
}

// unbound refuses a token that was not given to a pod.
func unbound(user string) error {
	return refuse(http.StatusForbidden, "the token of %s is not bound to a pod", user)
}
