package issuer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// slow is an API server that answers no review until the test allows it.
type slow struct {
	mu   sync.Mutex
	made int
	open chan struct{}
}

func (s *slow) Create(ctx context.Context, _ *authenticationv1.TokenReview) error {
	s.mu.Lock()
	s.made++
	s.mu.Unlock()
	select {
	case <-s.open:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// objects is the state of a cluster, as a cache or the API server returns it.
type objects []client.Object

func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, have := range o {
		if client.ObjectKeyFromObject(have) != key {
			continue
		}
		switch h := have.(type) {
		case *corev1.Pod:
			if p, ok := into.(*corev1.Pod); ok {
				h.DeepCopyInto(p)
				return nil
			}
		case *batchv1.Job:
			if b, ok := into.(*batchv1.Job); ok {
				h.DeepCopyInto(b)
				return nil
			}
		case *v1alpha1.MPIJob:
			if j, ok := into.(*v1alpha1.MPIJob); ok {
				h.DeepCopyInto(j)
				return nil
			}
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (o objects) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	for _, have := range o {
		if p, ok := have.(*corev1.Pod); ok {
			into.(*corev1.PodList).Items = append(into.(*corev1.PodList).Items, *p)
		}
	}
	return nil
}

// served returns an issuer with published keys, and a token of pod p in namespace hpc.
func served(t *testing.T, s *Server) (server *httptest.Server, token string) {
	t.Helper()
	server, key := signed(t, s)
	return server, tokenFor(t, key, "p", "u")
}

// signed returns an issuer with published keys, and the key that signs the tokens that it
// accepts.
func signed(t *testing.T, s *Server) (*httptest.Server, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{now: time.Now(), issuer: anIssuer, keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}}
	if s.Keys, err = NewKeys(bytes.Repeat([]byte("s"), 32)); err != nil {
		t.Fatal(err)
	}
	s.Signatures, s.Log = p.signatures(), slog.New(slog.DiscardHandler)
	s.OfPlace = func(string, int32, int32) client.ListOption { return client.MatchingLabels{} }
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server, key
}

func tokenFor(t *testing.T, key *ecdsa.PrivateKey, pod, uid string) string {
	t.Helper()
	return minted(t, key, "k", jose.ES256, map[string]any{
		"iss": anIssuer, "sub": "system:serviceaccount:hpc:default", "aud": names.TokenAudience, "exp": time.Now().Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{"namespace": "hpc", "pod": map[string]string{"name": pod, "uid": uid}},
	})
}

func requested(t *testing.T) []byte {
	t.Helper()
	_, request, err := pki.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// TestStrangersHoldNobodyUp: any number of forged tokens neither loads the API server
// nor delays sidecars.
func TestStrangersHoldNobodyUp(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	reviews := &slow{open: make(chan struct{})}
	own := &Server{Reviews: reviews, Cache: objects{}, Live: objects{}}
	server, good := served(t, own)
	own.strange = rate.NewLimiter(0, strangeBurst) // no refill, so that the result does not depend on the time
	request := requested(t)
	if status, text := post(t, server, good, request); status != http.StatusForbidden || !strings.Contains(text, "there is no pod p") {
		t.Fatalf("before: %d %s", status, text)
	}
	made := minted(t, other, "made-up", jose.ES256, map[string]any{"iss": anIssuer})
	const strangers = 4 * atOnce
	var away sync.WaitGroup
	refused := make(chan int, strangers)
	for range strangers {
		away.Go(func() {
			status, _ := post(t, server, made, request)
			refused <- status
		})
	}
	for range strangers - strangeBurst { // these are answered without a review
		if status := <-refused; status != http.StatusServiceUnavailable {
			t.Errorf("a stranger: %d", status)
		}
	}
	if status, text := post(t, server, good, request); status != http.StatusForbidden || !strings.Contains(text, "there is no pod p") {
		t.Errorf("a sidecar among untrusted callers: %d %s", status, text)
	}
	close(reviews.open)
	away.Wait()
	reviews.mu.Lock()
	defer reviews.mu.Unlock()
	if reviews.made != strangeBurst {
		t.Errorf("%d reviews of %d tokens that were made up", reviews.made, strangers)
	}
}

// TestCachesBehind: a replica whose caches do not have a job, its restart or its pod
// yet does not refuse a sidecar for that, because a refusal ends the sidecar.
func TestCachesBehind(t *testing.T) {
	job := func(restarts int32) *v1alpha1.MPIJob {
		j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", UID: "job"}}
		j.Spec.Ranks, j.Spec.RanksPerPod, j.Status.Restarts = 4, 2, &restarts
		return j
	}
	yes := true
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg-1", UID: "batch", OwnerReferences: []metav1.OwnerReference{{Kind: "MPIJob", Name: "cg", UID: "job", Controller: &yes}}}}
	pod := func(name string, uid types.UID, phase corev1.PodPhase, minute int64) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "hpc", Name: name, UID: uid, CreationTimestamp: metav1.Unix(60*minute, 0),
			Labels:          map[string]string{names.LabelJob: "cg", names.LabelAttempt: "1", batchv1.JobCompletionIndexAnnotation: "1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "cg-1", UID: "batch", Controller: &yes}},
		}}
		p.Status.PodIP, p.Status.Phase = "127.0.0.1", phase
		p.Spec.InitContainers = []corev1.Container{{Name: names.ContainerSidecar}}
		return p
	}
	is := objects{job(1), batch, pod("p", "u", corev1.PodPending, 2)}
	stale := *batch
	stale.UID = "earlier"
	other := pod("p", "u", corev1.PodPending, 2) // not found by its labels
	other.Labels[batchv1.JobCompletionIndexAnnotation] = "01"
	over := job(1)
	over.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFailed, Status: metav1.ConditionTrue}}
	// Pods of another controller have a label with the MPIJob that they have joined.
	external := job(1)
	external.Spec.PodManagement = v1alpha1.PodsExternal
	former := external.DeepCopy()
	former.UID = "earlier"
	joined := func(to, name string, uid types.UID, minute int64) *corev1.Pod {
		p := pod(name, uid, corev1.PodRunning, minute)
		p.Labels[names.LabelJobUID] = to
		return p
	}
	mine := joined("job", "p", "u", 2)
	for what, c := range map[string]struct {
		cache, live objects
		status      int
		want        string
	}{
		"all is known":            {is, nil, http.StatusOK, ""},
		"nothing is known":        {nil, is, http.StatusOK, ""},
		"no job":                  {objects{batch, is[2]}, is, http.StatusOK, ""},
		"no restart":              {objects{job(0), batch, is[2]}, is, http.StatusOK, ""},
		"an earlier Job":          {objects{job(1), &stale, is[2]}, is, http.StatusOK, ""},
		"an earlier pod":          {objects{job(1), batch, pod("p", "old", corev1.PodRunning, 1)}, is, http.StatusOK, ""},
		"its place was taken":     {objects{job(1), batch, is[2], pod("o", "o", corev1.PodRunning, 1)}, append(objects{pod("o", "o", corev1.PodFailed, 1)}, is...), http.StatusOK, ""},
		"it is taken for sure":    {append(objects{pod("o", "o", corev1.PodRunning, 1)}, is...), append(objects{pod("o", "o", corev1.PodRunning, 1)}, is...), http.StatusForbidden, "has the number of pod o"},
		"a number in other words": {objects{job(1), batch, other}, objects{job(1), batch, other}, http.StatusForbidden, "has no number"},
		"an earlier MPIJob's":     {objects{external, joined("earlier", "p", "u", 2)}, objects{external, joined("earlier", "p", "u", 2)}, http.StatusForbidden, "of an earlier MPIJob cg"},
		"after an earlier one's":  {objects{external, joined("earlier", "o", "o", 1), mine}, nil, http.StatusOK, ""},
		"of the earlier, so far":  {objects{former, mine}, objects{external, mine}, http.StatusOK, ""},
		"a job that is over":      {objects{over, batch, is[2]}, objects{over, batch, is[2]}, http.StatusForbidden, "is over"},
	} {
		server, token := served(t, &Server{Cache: c.cache, Live: c.live, CheckAddress: true})
		if status, text := post(t, server, token, requested(t)); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d", what, status, text, c.status)
		}
	}
}

// TestStartingPodsAreNoTrouble: if the address of a pod has not been reported yet, its sidecar
// waits for it. Neither the log nor the sidecar reports a refusal.
func TestStartingPodsAreNoTrouble(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "p", UID: "u"}}
	own := &Server{Cache: objects{pod}, Live: objects{pod}, CheckAddress: true}
	server, token := served(t, own)
	var out bytes.Buffer
	own.Log = slog.New(slog.NewTextHandler(&out, nil))
	status, text := post(t, server, token, requested(t))
	if status != http.StatusServiceUnavailable || !strings.HasPrefix(text, "waiting for the address of pod p") {
		t.Errorf("%d %s", status, text)
	}
	if said := out.String(); !strings.Contains(said, "waiting for the address of pod p") || strings.Contains(said, "refused") || strings.Contains(said, "503") {
		t.Errorf("the log says %s", said)
	}
}

// counter is an API server that counts its calls.
type counter struct {
	objects
	asked atomic.Int64
}

func (c *counter) Get(ctx context.Context, key client.ObjectKey, into client.Object, how ...client.GetOption) error {
	c.asked.Add(1)
	return c.objects.Get(ctx, key, into, how...)
}

func (c *counter) List(ctx context.Context, into client.ObjectList, how ...client.ListOption) error {
	c.asked.Add(1)
	return c.objects.List(ctx, into, how...)
}

// TestForeignPodsCostLittle: pods that belong to no job but have valid tokens do not cause a
// call to the API server for each request. The remaining rate suffices for pods that the
// caches do not have yet, in other namespaces and in the same one.
func TestForeignPodsCostLittle(t *testing.T) {
	live := &counter{}
	own := &Server{Cache: objects{}, Live: live}
	_ = own.Handler()
	own.search = rate.NewLimiter(0, searchBurst) // no refill, so that the result does not depend on the time
	own.searchPods = ration{rate: 1e-9, burst: 5, max: 1000}.shares()
	own.searchNamespaces = ration{rate: 1e-9, burst: searchPerNamespace.burst, max: 1000}.shares()
	look := func(pod int) error {
		_, err := own.locate(t.Context(), &caller{"hpc", "p", fmt.Sprint(pod)}, "")
		return err
	}
	final := func(err error) bool {
		f := new(refusal)
		return errors.As(err, &f) && f.status == http.StatusForbidden
	}
	for range 100 {
		_ = look(0)
	}
	if n := live.asked.Load(); n != 5 {
		t.Errorf("100 questions of a foreign pod cost %d calls, want 5", n)
	}
	if err := look(1); !final(err) {
		t.Errorf("another pod of its namespace: %v", err)
	}
	for pod := range 2 * searchBurst {
		_ = look(2 + pod)
	}
	if n := live.asked.Load(); n != int64(searchPerNamespace.burst) {
		t.Errorf("the foreign pods of a namespace cost %d calls, want %v", n, searchPerNamespace.burst)
	}
	if left := own.search.Tokens(); left != searchBurst-searchPerNamespace.burst {
		t.Errorf("%v second looks are left to others", left)
	}
}

// TestSharesAreBounded: the memory for callers does not grow with their number, and a caller
// that has used its share does not reduce the share of another one.
func TestSharesAreBounded(t *testing.T) {
	s := ration{rate: 1e-9, burst: 2, max: 100}.shares()
	for i := range 400 {
		for n := range 3 {
			if wait := s.spend(fmt.Sprint(i)); wait > 0 != (n == 2) {
				t.Fatalf("caller %d, question %d: has to wait %v", i, n, wait)
			}
		}
		if len(s.left) > 100 {
			t.Fatalf("%d callers are known", len(s.left))
		}
	}
}

// TestOnePodAsksNoMoreThanItsShare: a pod that sends requests without end is told when
// it may send the next one, for both kinds of requests, and other pods still get
// answers.
func TestOnePodAsksNoMoreThanItsShare(t *testing.T) {
	job := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", UID: "job"}}
	job.Spec.Ranks, job.Spec.RanksPerPod, job.Spec.PodManagement = 2, 1, v1alpha1.PodsExternal
	cache := placed{objects{job, member("p", 0, "127.0.0.1", 1), member("q", 1, "127.0.0.1", 1)}}
	for _, checked := range []bool{false, true} {
		own := &Server{Cache: cache, Live: cache, CheckAddress: checked}
		server, key := signed(t, own)
		own.OfPlace = ofLabels
		own.pods = ration{rate: 1e-9, burst: perPod.burst, max: 100}.shares()
		own.addressed = ration{rate: 1e-9, burst: 2 * perPod.burst, max: 100}.shares()
		greedy, other := tokenFor(t, key, "p", "p"), tokenFor(t, key, "q", "q")
		answered := 0
		for i := range int(perPod.burst) + 50 {
			ask := func() *http.Response { return answer(t, server, http.MethodGet, PathAddresses+"?part=0", greedy, nil) }
			if i%2 == 1 {
				ask = func() *http.Response { return answer(t, server, http.MethodPost, Path, greedy, requested(t)) }
			}
			r := ask()
			switch r.StatusCode {
			case http.StatusOK:
				answered++
			case http.StatusTooManyRequests:
				if after, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || after < 1 {
					t.Fatalf("refused, to ask again after %q", r.Header.Get("Retry-After"))
				}
			default:
				t.Fatalf("%s", r.Status)
			}
		}
		if answered != int(perPod.burst) {
			t.Errorf("%d questions of one pod were answered, want %v", answered, perPod.burst)
		}
		if r := answer(t, server, http.MethodGet, PathAddresses+"?part=0", other, nil); r.StatusCode != http.StatusOK {
			t.Errorf("another pod: %s", r.Status)
		}
		// A request with an unknown token counts for its address, if addresses are checked.
		refused := false
		for range 2 * int(perPod.burst) {
			refused = refused || answer(t, server, http.MethodGet, PathAddresses+"?part=0", "made up", nil).StatusCode == http.StatusTooManyRequests
		}
		if refused != checked {
			t.Errorf("addresses are checked: %v; one that asks without end is refused: %v", checked, refused)
		}
	}
}

// answer sends a request and returns its response, whose body is short.
func answer(t *testing.T, server *httptest.Server, method, path, token string, body []byte) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := server.Client().Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // the body was read
	return resp
}

// TestHandshakesOfOneAddress: the number of handshakes of an address is bounded by its share,
// and other addresses have their own shares.
func TestHandshakesOfOneAddress(t *testing.T) {
	s := &Server{CheckAddress: true}
	_ = s.Handler()
	s.handshakes = ration{rate: 1e-9, burst: 3, max: 100}.shares()
	begin := func(pod string) error {
		_, err := s.greeted(&tls.ClientHelloInfo{Conn: &from{pod: pod}})
		return err
	}
	for i := range 5 {
		if err := begin("10.0.0.1"); err != nil != (i >= 3) {
			t.Errorf("handshake %d: %v", i, err)
		}
	}
	if err := begin("10.0.0.2"); err != nil {
		t.Errorf("another address: %v", err)
	}
	s.networks = ration{rate: 1e-9, burst: 7, max: 100}.shares()
	for i := range 20 { // a handshake that is refused for its address does not count for its network
		_ = begin("2001:db8::1")
		if err := begin(fmt.Sprintf("2001:db8::1:%x", i)); err != nil != (i >= 4) {
			t.Errorf("handshake %d of a network: %v", i, err)
		}
	}
	if err := begin("2001:db8:0:1::1"); err != nil {
		t.Errorf("another network: %v", err)
	}
	if s.CheckAddress = false; begin("10.0.0.1") != nil {
		t.Error("an address that many pods seem to have is refused")
	}
}

// TestAddresses: different text forms of one address are equal.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"fd00::1", "fd00:0:0::0001", true},
		{"fe80::1", "fe80::1%eth0", true},
		{"10.0.0.1", "10.0.0.10", false},
		{"fd00::1", "fd00::2", false},
		{"", "", false},
		{"x", "x", false},
	} {
		if same(c.a, c.b) != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, !c.same)
		}
	}
}

// TestTalk: a caller that repeats its requests without end does not fill the log, and the
// omitted lines are counted.
func TestTalk(t *testing.T) {
	var log bytes.Buffer
	s := talk{limit: rate.NewLimiter(rate.Every(time.Hour), 2)}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for range 100 {
		s.warn(logger, "refused")
	}
	s.limit = rate.NewLimiter(rate.Inf, 1)
	s.warn(logger, "refused")
	if lines := strings.Count(log.String(), "\n"); lines != 3 || !strings.Contains(log.String(), "unsaid=98") {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
}
