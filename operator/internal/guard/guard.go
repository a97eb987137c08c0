// Package guard restricts metrics to authorized clients. The API server authenticates
// the client's token and authorizes its user (TokenReview, then SubjectAccessReview of
// a non-resource URL), as it does for kubelets and for other operators.
// controller-runtime's own filter does the same, but depends on packages of the API
// server that nothing else here needs.
package guard

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Bounds of the cache of answers and of reviews. An answer is used as long as in
// kubelets: a scraper costs two calls a minute, and a client that repeats one invalid
// token costs two calls in ten seconds.
const (
	allowedTime = time.Minute
	refusedTime = 10 * time.Second
	answersMax  = 1024
	tokenMax    = 16 << 10
	reviewTime  = 10 * time.Second
	atOnce      = 16 // concurrent reviews; further clients get status 503
)

// HeaderMax bounds the header of a request with a token, in bytes.
const HeaderMax = tokenMax + 4<<10

// Judge decides whether the holder of a token may access a non-resource URL.
type Judge interface {
	// Allowed returns the HTTP status for the request. An error means that the API
	// server did not decide.
	Allowed(ctx context.Context, token, path, verb string) (status int, err error)
}

// Guard passes the requests that the judge allows to a handler.
type Guard struct {
	Judge Judge
	Next  http.Handler
	Log   logr.Logger

	answers *cache.LRUExpireCache
	busy    chan struct{}
}

// New returns a guard.
func New(j Judge, next http.Handler, log logr.Logger) *Guard {
	return &Guard{Judge: j, Next: next, Log: log, answers: cache.NewLRUExpireCache(answersMax), busy: make(chan struct{}, atOnce)}
}

// Provider returns the filter for a manager's metrics.
func Provider(config *rest.Config, client *http.Client) (metrics.Filter, error) {
	api, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return New(&reviewer{api}, next, log), nil
	}, nil
}

// question is the key of a cached answer. It has a hash, so that tokens are not stored.
type question struct {
	token      [sha256.Size]byte
	path, verb string
}

func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > tokenMax {
		http.Error(w, "want a token: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		return
	}
	switch status := g.status(r.Context(), token, r.URL.Path, strings.ToLower(r.Method)); status {
	case http.StatusOK:
		g.Next.ServeHTTP(w, r)
	case http.StatusForbidden:
		http.Error(w, "the token's user may not "+strings.ToLower(r.Method)+" "+r.URL.Path+": bind the ClusterRole outrigger-metrics to it", status)
	case http.StatusUnauthorized:
		http.Error(w, "the API server does not know the token", status)
	default:
		http.Error(w, "the API server gave no answer; try again", status)
	}
}

// status returns the answer to a question, from the cache or from the API server.
func (g *Guard) status(ctx context.Context, token, path, verb string) int {
	q := question{sha256.Sum256([]byte(token)), path, verb}
	if known, ok := g.answers.Get(q); ok {
		return known.(int) //nolint:forcetypeassert // all values are ints
	}
	select {
	case g.busy <- struct{}{}:
		defer func() { <-g.busy }()
	default:
		return http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	status, err := g.Judge.Allowed(ctx, token, path, verb)
	if err != nil {
		g.Log.Error(err, "the client of a request for metrics could not be authenticated")
		return http.StatusServiceUnavailable
	}
	life := refusedTime
	if status == http.StatusOK {
		life = allowedTime
	}
	g.answers.Add(q, status, life)
	return status
}

// reviewer is a Judge that asks the API server.
type reviewer struct{ api kubernetes.Interface }

func (v *reviewer) Allowed(ctx context.Context, token, path, verb string) (int, error) {
	who, err := v.api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	u := who.Status.User
	if u.Username == "" {
		return 0, errors.New("a review names no user")
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for k, list := range u.Extra {
		extra[k] = authorizationv1.ExtraValue(list)
	}
	may, err := v.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, Groups: u.Groups, UID: u.UID, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return 0, err
	case !may.Status.Allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
