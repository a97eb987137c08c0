package engine

import (
	"errors"
	"maps"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Keeper is a link that keeps what it knows of applications' memory after the
// operations there. It is told before that is unmapped: when DropRegion has
// returned, the link does not touch the region any more.
type Keeper interface {
	DropRegion(region link.Region)
}

// Releaser is a link.Remote that can keep a registration whose operation has ended
// in order for the next one. Others deregister it.
type Releaser interface{ Release(link.Key) }

// Withdrawer is a link.Remote that can take a key back from the one peer that it was
// given to, where others have one of the same memory (link.Lender).
type Withdrawer interface {
	Withdraw(link.Peer, link.Key)
}

// Exposer is a link.Remote that registers windows apart from what it shares and
// keeps. Others register them.
type Exposer interface {
	Expose(ref link.Ref) (link.Key, error)
}

// Holder is a Keeper that keeps registrations beyond the operations that they were
// made for (package gather). It is told of each session's memory before anything of
// it can be sent.
type Holder interface {
	Keeper
	AddRegion(region link.Region, session uint32, size uint64)
}

// Sharer is a Keeper that passes sessions' memory to peers of this machine, as
// descriptors: size bytes from off on of fd, which it does not keep.
type Sharer interface {
	Keeper
	ShareRegion(region link.Region, fd int, off, size uint64) error
}

// showRegions tells links of a session's memory.
func (e *Engine) showRegions(a *attached) {
	for _, l := range e.links {
		if s, ok := l.(Sharer); ok {
			e.share(a, s)
		}
		if h, ok := l.(Holder); ok {
			for _, r := range a.regions {
				h.AddRegion(r, uint32(a.id), uint64(len(e.regions[r])))
			}
		}
	}
}

// share tells a link where a session's memory is. What cannot be shared is copied.
func (e *Engine) share(a *attached, s Sharer) {
	for i, f := range a.Files() {
		if f.FD < 0 {
			continue
		}
		if err := s.ShareRegion(a.regions[i], f.FD, f.Off, uint64(len(e.regions[a.regions[i]]))); err != nil {
			e.cfg.Log.Warn("large messages of a rank to other pods of this machine are copied once more", "rank", a.Rank, "cause", err)
		}
	}
}

// admit hands a session's context to the link that lends for it. Where none does, or
// this one cannot any more, the session goes on without.
func (e *Engine) admit(a *attached) {
	x := a.TakeContext()
	if x == nil {
		return
	}
	l, ok := e.cfg.Remote.(link.Lender)
	if !ok {
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

// dropRegions takes a session's memory from the links and forgets it.
func (e *Engine) dropRegions(a *attached) {
	for _, l := range e.links {
		if k, ok := l.(Keeper); ok {
			for _, r := range a.regions {
				k.DropRegion(r)
			}
			if a.lends != core.RegionNone {
				k.DropRegion(a.lends)
			}
		}
	}
	for _, r := range a.regions {
		e.regions[r] = nil
	}
}

// BufferCounter is a link that counts, for each session, which buffers it copies from
// and which it gathers from.
type BufferCounter interface {
	Buffers(session uint32) gather.Counts
	EndSession(session uint32)
}

// RankBuffers are the buffers of one rank.
type RankBuffers struct {
	Rank uint32
	gather.Counts
}

// buffers lists the ranks of a link that counts them, also those that have left.
func (e *Engine) buffers() []RankBuffers {
	c, ok := e.cfg.Remote.(BufferCounter)
	if !ok {
		return nil
	}
	all := maps.Clone(e.departed)
	if all == nil {
		all = map[uint32]gather.Counts{}
	}
	for _, a := range e.sessions {
		if a != nil {
			all[a.Rank] = all[a.Rank].Add(c.Buffers(uint32(a.id)))
		}
	}
	var list []RankBuffers
	for _, rank := range slices.Sorted(maps.Keys(all)) {
		list = append(list, RankBuffers{rank, all[rank]})
	}
	return list
}

// keepBuffers notes the last counts of a rank that has left. What of its memory the link has yet to let go of (RetireRegion) it
// will have let go of soon, and nobody would correct the note.
func (e *Engine) keepBuffers(a *attached) {
	if c, ok := e.cfg.Remote.(BufferCounter); ok {
		last := c.Buffers(uint32(a.id))
		last.PinnedBytes = 0
		if e.departed == nil {
			e.departed = map[uint32]gather.Counts{}
		}
		e.departed[a.Rank] = e.departed[a.Rank].Add(last)
		c.EndSession(uint32(a.id))
	}
}
