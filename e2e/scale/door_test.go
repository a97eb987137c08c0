//go:build cluster

package scale

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// door is a proxy between the operator and the API server, which counts the calls of the real
// program.
type door struct {
	Address string

	mu    sync.Mutex
	calls map[call]int
}

// call is a kind of call. Long-lived watches are counted when they begin.
type call struct{ verb, resource string }

func (c call) String() string { return c.verb + " " + c.resource }

// writes reports whether the call may change something.
func (c call) writes() bool { return c.verb != "get" && c.verb != "list" && c.verb != "watch" }

// openDoor serves a proxy of the API server of config on a loopback address, without
// credentials, until the test ends.
func openDoor(t *testing.T, config *rest.Config) *door {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	next, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Address: listener.Addr().String(), calls: map[call]int{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     next,
		FlushInterval: -1, // watches speak line by line
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else the operator has hung up
				t.Logf("%s %s: %v", r.Method, r.URL.Path, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.count(callOf(r))
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }() // until Close
	t.Cleanup(func() { _ = server.Close() })
	return d
}

// callOf reads the kind of a call off its path:
// /api/v1/namespaces/NS/RESOURCE/NAME/SUBRESOURCE, or /apis/GROUP/VERSION/...
func callOf(r *http.Request) call {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if skip == 0 || len(parts) <= skip {
		return call{"get", "discovery"}
	}
	parts = parts[skip:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	c := call{map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete",
	}[r.Method], parts[0]}
	switch {
	case len(parts) > 2:
		c.resource += "/" + parts[2]
	case r.URL.Query().Get("watch") != "":
		c.verb = "watch"
	case c.verb == "get" && len(parts) == 1:
		c.verb = "list"
	}
	return c
}

func (d *door) count(c call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[c]++
}

// counts returns the calls so far.
func (d *door) counts() counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.calls)
}

// counts of calls by kind.
type counts map[call]int

// since returns the calls after before.
func (c counts) since(before counts) counts {
	out := counts{}
	for k, n := range c {
		if n -= before[k]; n > 0 {
			out[k] = n
		}
	}
	return out
}

// total returns the number of calls, watches and discovery apart.
func (c counts) total() (all, writes int) {
	for k, n := range c {
		if k.verb == "watch" || k.resource == "discovery" {
			continue
		}
		all += n
		if k.writes() {
			writes += n
		}
	}
	return all, writes
}

// secondLooks returns how often the issuer has searched for a caller at the API server, and
// how many calls that took: it begins with the pod, which no other caller gets by name, and
// gets the MPIJob, the Job, and the pods of that place, if it comes so far.
func (c counts) secondLooks() (looks, cost int) {
	looks = c[call{"get", "pods"}]
	cost = looks
	for _, k := range []call{{"get", "mpijobs"}, {"get", "jobs"}, {"list", "pods"}} {
		cost += min(looks, c[k])
	}
	return looks, cost
}

// table prints the counts, for each of a number of jobs.
func (c counts) table(jobs int) string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(c), func(a, b call) int { return strings.Compare(a.resource+a.verb, b.resource+b.verb) }) {
		fmt.Fprintf(&b, "| %s | %d | %.2f |\n", k, c[k], float64(c[k])/float64(jobs))
	}
	all, writes := c.total()
	fmt.Fprintf(&b, "| all but watches | %d | %.2f |\n| writes | %d | %.2f |\n", all, float64(all)/float64(jobs), writes, float64(writes)/float64(jobs))
	return b.String()
}
