package engine

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// Keeper is a link that keeps what it knows of applications' memory after the
// operations there. It is told before that is unmapped: when DropRegion has
// returned, the link does not touch the region any more.
type Keeper interface {
	DropRegion(region link.Region)
}

// Holder is a Keeper that keeps registrations beyond the operations that they were
// made for (package gather). It is told of each session's memory before anything of
// it can be sent.
type Holder interface {
	Keeper
	AddRegion(region link.Region, session uint32, size uint64)
}

// showRegions tells links of a session's memory.
func (e *Engine) showRegions(a *attached) {
	for _, l := range e.links {
		if h, ok := l.(Holder); ok {
			for _, r := range a.regions {
				h.AddRegion(r, uint32(a.id), uint64(len(e.regions[r])))
			}
		}
	}
}

// dropRegions takes a session's memory from the links and forgets it.
func (e *Engine) dropRegions(a *attached) {
	for _, l := range e.links {
		if k, ok := l.(Keeper); ok {
			for _, r := range a.regions {
				k.DropRegion(r)
			}
		}
	}
	for _, r := range a.regions {
		e.regions[r] = nil
	}
}
