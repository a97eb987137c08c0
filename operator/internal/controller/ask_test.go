package controller

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestAsker: a pod that answers with a redirection, or not at all, is not
// followed, and mutes nobody but itself.
func TestAsker(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	serve := func(address string, h http.HandlerFunc) {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(names.PortMetrics)))
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(h)
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
	serve("127.0.7.1", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	var asked atomic.Int64
	serve("127.0.7.2", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"transport":[{"transport":"tcp"},{"transport":"local"}]}`))
	})
	pod := func(address string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(address)}, Status: corev1.PodStatus{PodIP: address}}
	}
	a := NewAsker()
	for range 2 {
		if got := a.InUse(t.Context(), pod("127.0.7.1")); got != nil {
			t.Errorf("a redirection gave %v", got)
		}
		if got := a.InUse(t.Context(), pod("127.0.7.3")); got != nil { // nobody listens
			t.Errorf("nobody gave %v", got)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a pod made the operator ask elsewhere %d times", n)
	}
	if got := a.InUse(t.Context(), pod("127.0.7.2")); len(got) != 1 || got[0] != "tcp" {
		t.Errorf("%v from a pod that answers, beside those that do not", got)
	}
	if !a.muted(pod("127.0.7.3")) || a.muted(pod("127.0.7.2")) {
		t.Error("the wrong pods are left alone")
	}
}

// TestMetricReasons: series are of reasons that are known; what tenants write is
// one of them.
func TestMetricReasons(t *testing.T) {
	for reason, want := range map[string]string{"RankExited": "RankExited", "PodsStarting": "PodsStarting", "Unschedulable": "Unschedulable", "Tenant1": "Other", "": "Other"} {
		if got := reasonLabel(reason); got != want {
			t.Errorf("%s is %s", reason, got)
		}
	}
}
