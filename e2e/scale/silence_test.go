//go:build cluster

package scale

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// looksOfTheYoung is the most checks of a job in each of its first minutes: the first after 5
// s, each next one when its age has grown by half (docs/mpijob-reference.md, Jobs that hang).
const looksOfTheYoung = 8

// silent checks that the operator makes no call for a time and reconciles no job, except for
// the running one: it asks the ranks of that job what they wait for, once a minute and more
// often in its first minutes. With settle, calls in progress may end first.
func silent(t *testing.T, d *door, o *operator, length time.Duration, settle bool) {
	t.Helper()
	for try := 0; ; try++ {
		calls, looks := d.counts(), o.reconciles(t)
		time.Sleep(length)
		after := d.counts().since(calls)
		maps.DeleteFunc(after, func(c call, _ int) bool { return c.verb == "watch" })
		more := 0
		for result, n := range o.reconciles(t) {
			more += n - looks[result]
		}
		if allowed := int(length/time.Minute) + looksOfTheYoung; len(after) == 0 && (more == 0 || !settle && more <= allowed) {
			return
		}
		if !settle || try == 100 {
			t.Fatalf("while nothing happened, for %v, the operator made the calls %v and looked at jobs: %v before, %v after", length, after, looks, o.reconciles(t))
		}
	}
}

// profile begins to take the operator's and the API server's profiles, if they are asked for; what it
// returns ends it.
func profile(ctx context.Context, t *testing.T, config *rest.Config, o *operator) func() {
	t.Helper()
	if flags.profiles == "" {
		return func() {}
	}
	server, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	save := func(name string, by *http.Client, url string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := by.Do(req)
		if err != nil {
			t.Log(err) // the test has ended before
			return
		}
		defer func() { _ = resp.Body.Close() }() // only read
		f, err := os.Create(filepath.Join(flags.profiles, name))
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = f.Close() }() // a cut profile is seen by its reader
		_, _ = io.Copy(f, resp.Body)
	}
	var all sync.WaitGroup
	all.Go(func() { save("cpu.pprof", http.DefaultClient, o.profile+"profile?seconds=30") })
	all.Go(func() { save("apiserver.pprof", server, config.Host+"/debug/pprof/profile?seconds=30") })
	return func() {
		save("heap.pprof", http.DefaultClient, o.profile+"heap")
		all.Wait()
	}
}
