package controller

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// serve runs an HTTP server in place of the sidecar of the pod with the given address.
func serve(t *testing.T, address string, h http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(names.PortMetrics)))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}

func pod(address string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(address)}, Status: corev1.PodStatus{PodIP: address}}
}

// TestAwaits: what a sidecar that is not ready waits for is reported as one line of
// bounded length. Other answers are ignored.
func TestAwaits(t *testing.T) {
	a := NewAsker()
	for i, c := range []struct {
		status     int
		body, want string
	}{
		{http.StatusServiceUnavailable, "not ready: the sidecar waits for a certificate\n", "the sidecar waits for a certificate"},
		{http.StatusServiceUnavailable, "not ready: two\nlines\x1b[2J", "two lines [2J"},
		{http.StatusServiceUnavailable, "not ready: " + strings.Repeat("x", 1<<20), strings.Repeat("x", awaitsMax-len("not ready: "))},
		{http.StatusServiceUnavailable, "another program", ""},
		{http.StatusOK, "ok", ""},
	} {
		address := "127.0.7." + strconv.Itoa(20+i)
		serve(t, address, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
		if got := a.Awaits(t.Context(), pod(address)); got != note(c.want) {
			t.Errorf("%d %.40q: %q, want %q", c.status, c.body, got, c.want)
		}
	}
	if got := a.Awaits(t.Context(), pod("127.0.7.30")); got != "" { // no program listens there
		t.Errorf("no sidecar waits for %q", got)
	}
}

// TestAsker: redirections are not followed, and a pod that does not answer is muted
// without an effect on other pods.
func TestAsker(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	serve(t, "127.0.7.1", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	var asked atomic.Int64
	serve(t, "127.0.7.2", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"transport":[{"transport":"tcp"},{"transport":"local"}]}`))
	})
	a := NewAsker()
	for range 2 {
		if got := a.InUse(t.Context(), pod("127.0.7.1")); got != nil {
			t.Errorf("a redirection gave %v", got)
		}
		if got := a.InUse(t.Context(), pod("127.0.7.3")); got != nil { // no server listens there
			t.Errorf("a pod without a server gave %v", got)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a pod made the operator ask elsewhere %d times", n)
	}
	if got := a.InUse(t.Context(), pod("127.0.7.2")); len(got) != 1 || got[0] != "tcp" {
		t.Errorf("%v from a pod that answers, among pods that do not", got)
	}
	if !a.muted(pod("127.0.7.3")) || a.muted(pod("127.0.7.2")) {
		t.Error("the wrong pods are left alone")
	}
}

// TestAnswersOfStrangers: the memory for an answer is bounded even if an untrusted
// program answers in place of a sidecar. A few MiB of JSON could otherwise take a
// hundred times as much memory when it is decoded.
func TestAnswersOfStrangers(t *testing.T) {
	list := strings.Repeat(",{}", 1<<20)
	serve(t, "127.0.7.4", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/why" {
			_, _ = io.WriteString(w, `[{"waits":[{}`+list+`]}]`)
			return
		}
		_, _ = io.WriteString(w, `{"transport":[{}`+list+`]}`)
	})
	a := NewAsker()
	a.Client.Timeout = time.Minute // time enough for the whole answer
	for what, ask := range map[string]func() bool{
		"waits": func() bool {
			ranks, err := a.WaitsOf(t.Context(), pod("127.0.7.4"), 128)
			return err != nil && ranks == nil
		},
		"transports": func() bool { return a.InUse(t.Context(), pod("127.0.7.4")) == nil },
	} {
		clear(a.silent)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		refused := ask()
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 64 || !refused {
			t.Errorf("%s: an answer of %d MiB takes %d MiB, refused: %v", what, len(list)>>20, n, refused)
		}
	}
}

// TestMetricReasons: the reason label has only known values; reasons that tenants make
// up share one value.
func TestMetricReasons(t *testing.T) {
	for reason, want := range map[string]string{"RankExited": "RankExited", "PodsStarting": "PodsStarting", "Unschedulable": "Unschedulable", "Tenant1": "Other", "": "Other"} {
		if got := reasonLabel(reason); got != want {
			t.Errorf("%s is %s", reason, got)
		}
	}
}
