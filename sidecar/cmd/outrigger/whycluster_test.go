package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// TestWaitsOnACluster: running pods are asked through the API server's proxy. The error
// names pods that do not answer, a few if there are many.
func TestWaitsOnACluster(t *testing.T) {
	const pods = 40
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/hpc/pods", func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("labelSelector"); got != "outrigger.dev/job-name=cg" {
			t.Errorf("asked for %q", got)
		}
		var items []string
		for i := range pods {
			phase := "Running"
			if i == 0 {
				phase = "Succeeded"
			}
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"cg-0-%d"},"status":{"phase":%q}}`, i, phase))
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
	})
	mux.HandleFunc("GET /api/v1/namespaces/hpc/pods/{pod}/proxy/why", func(w http.ResponseWriter, r *http.Request) {
		var pod int
		if _, err := fmt.Sscanf(r.PathValue("pod"), "cg-0-%d:9464", &pod); err != nil || pod == 0 {
			t.Errorf("asked %q", r.PathValue("pod"))
		}
		if pod < 10 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, `{"kind":"Status","message":"dial tcp: refused"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `[{"rank":%d,"quiet":5,"waits":[{"kind":"recv","seconds":5,"peer":3,"tag":7}]}]`, pod)
	})
	mux.HandleFunc("GET /api/v1/namespaces/idle/pods", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"items":[]}`) })
	server := httptest.NewServer(mux)
	defer server.Close()
	c := &cluster{server.Client(), server.URL}
	ranks, err := c.waits(t.Context(), "hpc", "cg")
	if len(ranks) != pods-10 || strings.Count(fmt.Sprint(err), "\n") != 4 || !strings.Contains(fmt.Sprint(err), "dial tcp: refused") || !strings.HasSuffix(err.Error(), "5 more pods do not answer") {
		t.Errorf("%d ranks: %v", len(ranks), err)
	}
	if lines := why.Explain(ranks); len(lines) != 1 || lines[0] != "ranks 10 to 39 wait 5 s: recv from 3 tag 7" {
		t.Errorf("%q", lines)
	}
	if _, err := c.waits(t.Context(), "idle", "cg"); err == nil || !strings.Contains(err.Error(), "no running pod") {
		t.Errorf("%v", err)
	}
}

// TestUntrustedWaits: a reply from another process in the pod is bounded as a sidecar's.
func TestUntrustedWaits(t *testing.T) {
	waits := strings.Repeat(`{"kind":"recv"},`, 500)
	for name, c := range map[string]struct{ says, want string }{
		"waits":     {`[{"rank":1,"waits":[` + strings.TrimSuffix(waits, ",") + `]}]`, ""},
		"ranks":     {`[` + strings.Repeat(`{},`, 2000) + `{}]`, "pod cg-0-0: more than the 1024 ranks of the pod"},
		"long rank": {`[{"state":"` + strings.Repeat("x", 1<<20) + `"}]`, "pod cg-0-0: a rank of more than 16384 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /api/v1/namespaces/hpc/pods", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprint(w, `{"items":[{"metadata":{"name":"cg-0-0"},"status":{"phase":"Running"}}]}`)
			})
			mux.HandleFunc("GET /api/v1/namespaces/hpc/pods/{pod}/proxy/why", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, c.says) })
			server := httptest.NewServer(mux)
			defer server.Close()
			cluster := &cluster{server.Client(), server.URL}
			ranks, err := cluster.waits(t.Context(), "hpc", "cg")
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || len(ranks) != 0 {
					t.Errorf("%d ranks: %v, want %q", len(ranks), err, c.want)
				}
			} else if err != nil || len(ranks) != 1 || len(ranks[0].Waits) != 8 {
				t.Errorf("%v: %v", ranks, err)
			}
		})
	}
}
