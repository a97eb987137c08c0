package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// publisher is an API server that publishes keys, with its clock.
type publisher struct {
	now    time.Time
	issuer string
	keys   []jose.JSONWebKey
	down   error
	looks  int
}

func (p *publisher) fetch(_ context.Context, path string) ([]byte, error) {
	if path == pathDiscovery {
		p.looks++
	}
	if p.down != nil {
		return nil, p.down
	}
	if path == pathDiscovery {
		return json.Marshal(map[string]string{"issuer": p.issuer})
	}
	return json.Marshal(jose.JSONWebKeySet{Keys: p.keys})
}

func (p *publisher) signatures() *Signatures {
	return &Signatures{Fetch: p.fetch, Now: func() time.Time { return p.now }}
}

const anIssuer = "https://kubernetes.default.svc"

// minted returns a token that key signs under the key id kid.
func minted(t *testing.T, key any, kid string, alg jose.SignatureAlgorithm, said any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(said).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSignatures checks which tokens the published keys accept, which they refuse, and about
// which they do not decide.
func TestSignatures(t *testing.T) {
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	p := &publisher{now: now, issuer: anIssuer, keys: []jose.JSONWebKey{
		{Key: old.Public(), KeyID: "rsa", Algorithm: "RS256", Use: "sig"},
		{Key: curve.Public(), KeyID: "ec", Use: "sig"},
		{Key: []byte("a published secret"), KeyID: "secret", Algorithm: "HS256"},
	}}
	said := func(change func(c map[string]any)) map[string]any {
		c := map[string]any{
			"iss": anIssuer, "sub": "system:serviceaccount:hpc:default", "aud": []string{names.TokenAudience},
			"exp": now.Add(10 * time.Minute).Unix(), "nbf": now.Unix(), "iat": now.Unix(),
			"kubernetes.io": map[string]any{"namespace": "hpc", "pod": map[string]string{"name": "p", "uid": "u"}},
		}
		if change != nil {
			change(c)
		}
		return c
	}
	with := func(field string, value any) map[string]any {
		return said(func(c map[string]any) { c[field] = value })
	}
	without := func(field string) map[string]any { return said(func(c map[string]any) { delete(c, field) }) }
	ec := func(said any) string { return minted(t, curve, "ec", jose.ES256, said) }
	whole := ec(said(nil))
	parts := strings.Split(whole, ".")
	const taken, strange = "", "do not judge"
	for what, c := range map[string]struct{ token, want string }{
		"RSA":                           {minted(t, old, "rsa", jose.RS256, said(nil)), taken},
		"an elliptic curve":             {whole, taken},
		"two audiences":                 {ec(with("aud", []string{"x", names.TokenAudience})), taken},
		"no token":                      {"token", "is not one for"},
		"unsigned":                      {"eyJhbGciOiJub25lIn0." + parts[1] + ".", "is not one for"},
		"another's signature":           {minted(t, other, "ec", jose.ES256, said(nil)), "is not one for"},
		"a changed claim":               {parts[0] + "." + strings.Split(ec(with("sub", "system:serviceaccount:hpc:x")), ".")[1] + "." + parts[2], "is not one for"},
		"the key's algorithm is not it": {minted(t, curve, "rsa", jose.ES256, said(nil)), strange},
		"a shared secret":               {minted(t, []byte(strings.Repeat("a published secret", 2)), "secret", jose.HS256, said(nil)), "is not one for"},
		"an unknown key":                {minted(t, other, "new", jose.ES256, said(nil)), strange},
		"no key's name":                 {minted(t, curve, "", jose.ES256, said(nil)), strange},
		"another issuer":                {ec(with("iss", "https://example.com")), strange},
		"no issuer":                     {ec(without("iss")), strange},
		"expired":                       {ec(with("exp", now.Add(-2*time.Minute).Unix())), strange},
		"without end":                   {ec(without("exp")), "never expires"},
		"of tomorrow":                   {ec(with("nbf", now.Add(24*time.Hour).Unix())), strange},
		"another audience":              {ec(with("aud", []string{"x"})), "invalid audience"},
		"no audience":                   {ec(without("aud")), "invalid audience"},
		"a person's":                    {ec(with("sub", "jane")), "not bound to a pod"},
		"no pod's":                      {ec(with("kubernetes.io", map[string]any{"namespace": "hpc"})), "not bound to a pod"},
		"a pod of another namespace":    {ec(with("sub", "system:serviceaccount:x:default")), "not bound to a pod"},
		"no claims of Kubernetes'":      {ec(without("kubernetes.io")), "not bound to a pod"},
	} {
		found, err := p.signatures().caller(t.Context(), c.token)
		switch {
		case c.want == taken:
			if err != nil || *found != (caller{"hpc", "p", "u"}) {
				t.Errorf("%s: %+v, %v", what, found, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errStrange) != (c.want == strange):
			t.Errorf("%s: %+v, %v, want %q", what, found, err, c.want)
		}
	}
}

// TestLooks: the published keys are read once for all pods. For an unknown key they are read
// again, but not sooner than lookPause after the last read. A withdrawn key is refused after
// keysAge.
func TestLooks(t *testing.T) {
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	keys := map[string]*ecdsa.PrivateKey{"a": key(), "b": key()}
	p := &publisher{now: time.Unix(1_800_000_000, 0), issuer: anIssuer}
	publish := func(ids ...string) {
		p.keys = nil
		for _, id := range ids {
			p.keys = append(p.keys, jose.JSONWebKey{Key: keys[id].Public(), KeyID: id})
		}
	}
	s := p.signatures()
	step := func(after time.Duration, id string, want error, looks int) {
		t.Helper()
		p.now = p.now.Add(after)
		_, err := s.caller(t.Context(), minted(t, keys[id], id, jose.ES256, map[string]any{
			"iss": anIssuer, "sub": "system:serviceaccount:hpc:default", "aud": names.TokenAudience, "exp": p.now.Add(time.Minute).Unix(),
			"kubernetes.io": map[string]any{"namespace": "hpc", "pod": map[string]string{"name": "p", "uid": "u"}},
		}))
		if !errors.Is(err, want) || p.looks != looks {
			t.Errorf("key %s: %v after %d looks, want %v after %d", id, err, p.looks, want, looks)
		}
	}
	publish("a")
	step(0, "a", nil, 1)
	for range 1000 {
		step(0, "a", nil, 1)
	}
	step(0, "b", errStrange, 1) // the last read was a moment ago
	step(lookPause, "b", errStrange, 2)
	publish("b")
	step(lookPause, "b", nil, 3) // the key is new
	publish("a", "b")
	step(keysAge, "a", nil, 4)
	publish("b")
	step(keysAge-time.Second, "a", nil, 4)
	step(time.Second, "a", errStrange, 5) // withdrawn
	p.down = fmt.Errorf("forbidden")
	step(keysAge-time.Second, "b", nil, 5)
	step(time.Second, "b", errUnjudged, 6) // no published keys are valid any more
	step(time.Second, "b", errUnjudged, 6)
	p.down = nil
	step(lookPause, "b", nil, 7)
}
