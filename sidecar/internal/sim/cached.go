package sim

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// cached is a port behind a registration cache (package gather).
type cached struct {
	*gather.Remote
	port *port
}

// RunCached runs the job of a seed like Run, with links that cache registrations, with small
// budgets. Neighbours in an arena then share registrations, and the cache evicts, refuses,
// transfers and drops them while protocols use them.
func RunCached(seed uint64) (covered Coverage, err error) { return newCached(seed).job() }

func newCached(seed uint64) *world {
	w := newWorld(seed)
	w.caching, w.net.parts = true, false // neighbours are registered together
	return w
}

// remote returns the link that the engine of a port uses.
func (w *world) remote(p *port, ranks int) (link.Link, error) {
	if x := w.net.lossy; x != nil {
		return x.link(w.net, p.self)
	}
	if !w.caching {
		return p, nil
	}
	budget := uint64(256<<10) << w.rng.IntN(4)
	over, err := gather.Over(p, gather.Config{
		Sessions: ranks, Reuse: reuse.Config{Buckets: 64, Entries: 64}, Local: regcache.Config{PinnedBytes: 64 << 10},
		Remote: &regcache.Config{PinnedBytes: budget, Entries: 2 + w.rng.IntN(6), Batch: 1 + w.rng.IntN(4)},
	})
	if err != nil {
		return nil, err
	}
	c := &cached{over, p}
	w.caches = append(w.caches, c)
	return c, nil
}

// Abilities returns the abilities of the cache, and those of the port for which the cache
// keeps no registrations.
func (c *cached) Abilities() link.Abilities {
	a := c.Remote.Abilities()
	a.Attach, a.PeerCaps = c.port.Attach, c.port.PeerCaps
	a.Remote, a.Gatherer, a.Lender = c, c.port, c.port // the cache does not keep lent memory
	a.DropRegion = c.DropRegion
	return a
}

// Deregister ends the registration of an operation that has ended early. The peer may still
// access the memory, which the engine releases now, so that the cache must not keep it.
func (c *cached) Deregister(k link.Key) {
	c.Remote.Deregister(k)
	if _, ok := c.port.keys[k.Key]; ok {
		c.port.net.fault = fmt.Sprintf("pod %d keeps a registration whose operation has ended early", c.port.self)
	}
}

// DropRegion drops a region from the cache and from the port, which may lend it.
func (c *cached) DropRegion(r link.Region) {
	c.Remote.DropRegion(r)
	c.port.DropRegion(r)
}

// checkCaches checks that the number of registrations is that of the cache's entries, the
// rings and the windows.
func (w *world) checkCaches(pod, rings, windows int) error {
	if w.net.lossy != nil { // no port registers anything
		return nil
	}
	kept := 0
	if w.caching {
		local, remote := w.caches[pod].Caches()
		kept = local.Entries + remote.Entries
	}
	if kept != 0 && w.engines[pod].Remains().Sessions == 0 && !w.net.ports[pod].dead { // the end of a session drops its registrations
		return fmt.Errorf("pod %d keeps %d registrations of ranks that have left", pod, kept)
	}
	if n := len(w.net.ports[pod].keys); n != rings+windows+kept {
		return fmt.Errorf("pod %d has left %d registrations, and %d rings, %d windows and %d in its cache", pod, n, rings, windows, kept)
	}
	return nil
}

// reused returns the hits and evictions of the caches of a job.
func (w *world) reused() (hits, evictions uint64) {
	for _, c := range w.caches {
		_, s := c.Caches()
		hits, evictions = hits+s.Hits, evictions+s.Evictions
	}
	return hits, evictions
}
