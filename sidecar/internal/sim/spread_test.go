package sim

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

// unconnected returns a job of many pods with one rank each and without connections.
func unconnected(t *testing.T, pods int) *world {
	t.Helper()
	w := &world{rng: rand.New(rand.NewPCG(uint64(pods), 1)), victim: -1, doomed: -1, slow: -1, silence: silence{pod: -1}} //nolint:gosec // of a seed
	for p := range pods {
		w.podOf = append(w.podOf, int32(p))
	}
	w.net = newNetwork(w.rng, pods)
	w.net.faultless = true
	for _, p := range w.net.ports {
		loop := local.New(p.self, nil)
		e, err := engine.New(engine.Config{
			Core:  core.Config{Self: p.self, PodOf: w.podOf, Pods: pods, StartWithin: time.Hour, FastPeers: -1, CreditBytes: 128 << 10},
			Local: loop, Remote: p, Dialer: p, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}, func() int64 { return w.net.now + 1 })
		if err != nil {
			t.Fatal(err)
		}
		loop.SetMemory(e)
		p.memory = e
		w.engines = append(w.engines, e)
		t.Cleanup(func() { _ = e.Close() }) // it holds only memory
	}
	return w
}

// TestFailureSpreads: in a job without connections every sidecar learns of a failure, each
// makes only a few connections for that, and the loss of any sidecars does not prevent it.
func TestFailureSpreads(t *testing.T) {
	const most = 12 // its parent, four children, and the parents and children of lost ones
	for what, c := range map[string]struct {
		pods int
		lost []int // pods that are lost; the first one is the failure
		from int
	}{
		"a rank":                   {90, nil, 77},
		"a rank of the first pod":  {90, nil, 0},
		"a rank of the last pod":   {90, nil, 89},
		"a sidecar":                {60, []int{13}, 59},
		"the first sidecar":        {60, []int{0}, 59},
		"a sidecar and its parent": {60, []int{13, 3}, 59},
		"the first two":            {60, []int{1, 0}, 59},
		"two pods":                 {2, nil, 1},
	} {
		w := unconnected(t, c.pods)
		f := core.Failure{Rank: uint32(c.from), Code: 1, Reason: "expelled: it lied"}
		gone := map[int]bool{}
		for i, pod := range c.lost {
			if i == 0 {
				f = core.Failure{Rank: uint32(pod), Code: 1, Reason: podlife.TextLost + "x"}
			}
			w.net.ports[pod].dead, gone[pod] = true, true
		}
		w.engines[c.from].Fail(&f)
		for end := w.net.now + deathNotice; w.net.now < end && w.countInformed() < c.pods-len(c.lost); {
			w.idle(5_000_000)
		}
		if n := w.countInformed(); n != c.pods-len(c.lost) {
			t.Errorf("%s: %d of %d sidecars know of the failure", what, n, c.pods-len(c.lost))
		}
		made := make([]int, c.pods)
		for ends, l := range w.net.lines {
			if l.generation > 0 {
				made[ends[0]]++
				made[ends[1]]++
			}
		}
		for pod, n := range made {
			if n > most {
				t.Errorf("%s: pod %d has %d connections, want at most %d", what, pod, n, most)
			}
		}
	}
}

func (w *world) countInformed() (n int) {
	for _, e := range w.engines {
		if e.Failure() != nil {
			n++
		}
	}
	return n
}
