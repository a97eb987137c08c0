package engine

import (
	"errors"
	"maps"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// showRegions announces a session's memory to the links.
func (e *Engine) showRegions(a *attached) {
	around := (func(off uint64) (from, to uint64))(nil)
	if p := a.Pieces(); p != nil {
		around = p.Around
	}
	e.cfg.Copies.AddMemory(e.regions[a.regions[0]], nil) // the slab
	e.cfg.Copies.AddMemory(e.regions[a.regions[1]], around)
	for i := range e.can {
		if share := e.can[i].ShareRegion; share != nil {
			e.share(a, share)
		}
		if add := e.can[i].AddRegion; add != nil {
			for _, r := range a.regions {
				add(r, uint32(a.id), uint64(len(e.regions[r])))
			}
		}
	}
}

// share passes the descriptors of a session's memory to a link. Memory that cannot be
// shared is copied.
func (e *Engine) share(a *attached, share func(r link.Region, fd int, off, size uint64) error) {
	for i, f := range a.Files() {
		if f.FD < 0 {
			continue
		}
		if err := share(a.regions[i], f.FD, f.Off, uint64(len(e.regions[a.regions[i]]))); err != nil {
			e.cfg.Log.Warn("large messages of a rank to other pods of this machine are copied once more", "rank", a.Rank, "cause", err)
		}
	}
}

// admit passes a session's context to the link that lends memory. If no link lends, or the
// link refuses, the session's messages are copied.
func (e *Engine) admit(a *attached) {
	x := a.TakeContext()
	if x == nil {
		return
	}
	l := e.can[linkRemote].Lender
	if l == nil {
		e.giveUp(a, x, errNoLender)
		return
	}
	r := e.addRegion(nil)
	if err := l.Admit(r, x); err != nil {
		e.giveUp(a, x, err)
		return
	}
	a.lends = r
	e.core.Lend(a.id, l, r)
}

var errNoLender = errors.New("the transport lends no memory")

func (e *Engine) giveUp(a *attached, x link.Context, cause error) {
	e.cfg.Log.Warn("memory that a rank registers itself is not used: its messages are copied", "rank", a.Rank, "cause", errors.Join(cause, x.Close()))
}

// dropRegions removes a session's memory from the links and from the engine.
func (e *Engine) dropRegions(a *attached) {
	for i := range e.can {
		if drop := e.can[i].DropRegion; drop != nil {
			for _, r := range a.regions {
				drop(r)
			}
			if a.lends != core.RegionNone {
				drop(a.lends)
			}
		}
	}
	for _, r := range a.regions {
		if err := e.cfg.Copies.DropMemory(e.regions[r]); err != nil {
			e.cfg.Log.Warn("memory of a rank stays pinned for a copy engine", "rank", a.Rank, "cause", err)
		}
		e.regions[r] = nil
	}
}

// RankBuffers counts the buffers of one rank.
type RankBuffers struct {
	Rank uint32
	link.BufferCounts
}

// buffers returns the counts of all ranks, those that have left included, if the link
// counts buffers.
func (e *Engine) buffers() []RankBuffers {
	count := e.can[linkRemote].Buffers
	if count == nil {
		return nil
	}
	all := maps.Clone(e.departed)
	if all == nil {
		all = map[uint32]link.BufferCounts{}
	}
	for _, a := range e.sessions {
		if a != nil {
			all[a.Rank] = all[a.Rank].Add(count(uint32(a.id)))
		}
	}
	var list []RankBuffers
	for _, rank := range slices.Sorted(maps.Keys(all)) {
		list = append(list, RankBuffers{rank, all[rank]})
	}
	return list
}

// keepBuffers keeps the last counts of a rank that has left. Memory of it that the link
// still has pinned (RetireRegion) is counted as unpinned: it will be soon, and the counts
// are not corrected then.
func (e *Engine) keepBuffers(a *attached) {
	if c := &e.can[linkRemote]; c.Buffers != nil {
		last := c.Buffers(uint32(a.id))
		last.PinnedBytes = 0
		if e.departed == nil {
			e.departed = map[uint32]link.BufferCounts{}
		}
		e.departed[a.Rank] = e.departed[a.Rank].Add(last)
		c.EndSession(uint32(a.id))
	}
}
