// Package guard serves metrics to who may see them: who that is, and what they
// may, the API server says, as it does for kubelets and for other operators
// (TokenReview, then SubjectAccessReview of a non-resource URL). controller-
// runtime's own filter does the same with the API server's packages, of which
// nothing else here has a use.
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

// How long an answer of the API server counts, as in kubelets, and how many are
// kept: a scraper costs two calls in a minute, a stranger who asks again and
// again with one token two in ten seconds.
const (
	allowedTime = time.Minute
	refusedTime = 10 * time.Second
	answersMax  = 1024
	tokenMax    = 16 << 10
	reviewTime  = 10 * time.Second
	atOnce      = 16 // reviews; more callers are told to come again
)

// HeaderMax bounds the header of a request that shows a token, in bytes.
const HeaderMax = tokenMax + 4<<10

// Judge says whether who has a token may do something to a non-resource URL.
type Judge interface {
	// Allowed reports it; the error is the API server's and says nothing of the caller.
	Allowed(ctx context.Context, token, path, verb string) (status int, err error)
}

// Guard lets those pass to a handler whom the judge allows.
type Guard struct {
	Judge Judge
	Next  http.Handler
	Log   logr.Logger

	answers *cache.LRUExpireCache
	busy    chan struct{}
}

// New makes a guard.
func New(j Judge, next http.Handler, log logr.Logger) *Guard {
	return &Guard{Judge: j, Next: next, Log: log, answers: cache.NewLRUExpireCache(answersMax), busy: make(chan struct{}, atOnce)}
}

// Provider makes the filter of a manager's metrics.
func Provider(config *rest.Config, client *http.Client) (metrics.Filter, error) {
	api, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return New(&reviewer{api}, next, log), nil
	}, nil
}

// question is what an answer is kept for; tokens are not.
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
		http.Error(w, "the API server could not be asked; come again", status)
	}
}

// status is the answer to a question, if need be the API server's.
func (g *Guard) status(ctx context.Context, token, path, verb string) int {
	q := question{sha256.Sum256([]byte(token)), path, verb}
	if known, ok := g.answers.Get(q); ok {
		return known.(int) //nolint:forcetypeassert // nothing else is added
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
		g.Log.Error(err, "who asks for metrics could not be found out")
		return http.StatusServiceUnavailable
	}
	life := refusedTime
	if status == http.StatusOK {
		life = allowedTime
	}
	g.answers.Add(q, status, life)
	return status
}

// reviewer has the API server judge.
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
