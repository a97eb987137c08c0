package engine

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// Holder is a link that keeps registrations of applications' memory beyond the
// operations that they were made for (package gather). It is told of each session's
// memory before anything of it can be sent, and before it is unmapped: when DropRegion
// has returned, the link does not touch the region any more.
type Holder interface {
	AddRegion(region link.Region, session uint32, size uint64)
	DropRegion(region link.Region)
}

// holders visits the links that keep registrations.
func (e *Engine) holders(visit func(Holder)) {
	for _, l := range e.links {
		if h, ok := l.(Holder); ok {
			visit(h)
		}
	}
}

// showRegions tells links of a session's memory.
func (e *Engine) showRegions(a *attached) {
	e.holders(func(h Holder) {
		for _, r := range a.regions {
			h.AddRegion(r, uint32(a.id), uint64(len(e.regions[r])))
		}
	})
}

// dropRegions takes a session's memory from the links and forgets it.
func (e *Engine) dropRegions(a *attached) {
	e.holders(func(h Holder) {
		for _, r := range a.regions {
			h.DropRegion(r)
		}
	})
	for _, r := range a.regions {
		e.regions[r] = nil
	}
}
