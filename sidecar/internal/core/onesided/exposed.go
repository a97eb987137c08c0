package onesided

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/expose"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Windows of this sidecar's ranks that peers reach remotely (P§5.6).

// exposed is the memory of a window that peers write to, by frames or remotely. It
// outlives the window until no peer accesses it any more.
type exposed struct {
	expose.Exposure
	session ranks.SessionID // whose memory is held
	rank    uint32
	mem     link.Ref
	peer    link.Peer // that it was registered for
	freed   uint32    // request that ends with it, plus 1; 0: none
}

// onExpose tells a peer where a window lies.
func (r *Room) onExpose(p *peer, h *wire.Header) error {
	if err := r.addressed(p, h); err != nil {
		return err
	}
	body := wire.ExposedBody{}
	w := r.window(h.Context, h.Dst)
	if w != nil {
		if err := r.expose(p, w, h); err != nil {
			return err
		}
		x := r.exposures.Get(w.exposed)
		body.Len = x.mem.Len
		if key, ok := x.Key(); ok {
			body.Key, body.Addr = key.Key, key.Addr
		}
	}
	f := r.channel.Answer(p.id, wire.Exposed)
	f.Head.A = h.A
	if w == nil {
		f.Head.B = 1
	}
	f.Head.Length = uint32(body.Encode(f.Inline[:]))
	return nil
}

// expose notes a peer that asks for a window, and registers that for the first one.
func (r *Room) expose(p *peer, w *window, h *wire.Header) error {
	x := r.exposureOf(w, h.Dst)
	register, err := x.Ask(expose.Holder{Peer: p.id, View: h.A})
	if err != nil || !register || w.mem.Len == 0 || !r.channel.Caps(p.id).Register {
		return err
	}
	if key, err := r.ports.Expose(p.id, w.mem); err != nil {
		r.stats.Unregistered++
	} else {
		x.peer = p.id
		x.Registered(key)
		r.stats.Exposed++
		r.stats.Reachable++
	}
	return nil
}

// exposureOf is the record of a window that others write to.
func (r *Room) exposureOf(w *window, rank uint32) *exposed {
	x := r.exposures.Get(w.exposed)
	if x == nil {
		x, w.exposed = r.exposures.Alloc()
		x.session, x.rank, x.mem = w.session, rank, w.mem
		r.sessions.Hold(x.session)
	}
	return x
}

// landed notes that the payload of a Put is in its window, or comes no more.
func (r *Room) landed(id uint64) {
	if x := r.exposures.Get(id); x != nil {
		x.Placed()
		r.endExposure(id, x)
	}
}

// Divert reports that the payload of a Put that was cut off has to come again into
// memory that is not read, since its window has ended meanwhile.
func (r *Room) Divert(of Inbound) bool {
	x := r.exposures.Get(of.ID)
	if of.Kind != InboundPut || x == nil || !x.Closing() {
		return false
	}
	r.landed(of.ID)
	return true
}

// Dropped notes that a payload does not come any more.
func (r *Room) Dropped(of Inbound) {
	if of.Kind == InboundPut {
		r.landed(of.ID)
	}
}

// conceal begins the end of a window's exposure; false: it is not exposed. The
// request, if there is one, ends with it. In a failed job no peer is asked.
func (r *Room) conceal(w *window, freed uint32) bool {
	x := r.exposures.Get(w.exposed)
	if x == nil {
		return false
	}
	x.freed = freed
	holders := x.Close()
	if r.job.Failed() {
		holders = nil
		x.Abandon()
	}
	for i := len(holders) - 1; i >= 0; i-- {
		h := holders[i]
		if r.channel.Standing(h.Peer)&(Beyond|Over) != 0 {
			x.Leave(h.Peer)
			continue
		}
		f := r.channel.Emit(h.Peer, wire.Conceal)
		f.Head.Src, f.Head.Dst, f.Head.A, f.Head.B = x.rank, r.cfg.First[h.Peer], h.View, w.exposed
	}
	r.endExposure(w.exposed, x)
	return true
}

// concealCost is what conceal counts of a step's budget: each holder is told.
func (r *Room) concealCost(w *window) int {
	if x := r.exposures.Get(w.exposed); x != nil && !r.job.Failed() {
		return 1 + x.Holders()
	}
	return 1
}

// onConcealed notes that a peer does not reach for a window any more.
func (r *Room) onConcealed(p *peer, h *wire.Header) error {
	x := r.exposures.Get(h.A)
	if x == nil {
		return r.exposures.Ended(h.A, "the end of")
	}
	if !x.Closing() {
		return fmt.Errorf("%w: the end of a window that has not ended", link.ErrProtocol)
	}
	x.Leave(p.id) // else its connection has ended meanwhile
	r.endExposure(h.A, x)
	return nil
}

// endExposure ends a registration that no peer uses any more.
func (r *Room) endExposure(id uint64, x *exposed) {
	if !x.Over() {
		return
	}
	if key, ok := x.Key(); ok {
		r.ports.Deregister(x.peer, key)
		r.stats.Reachable--
	}
	s, freed := x.session, x.freed
	r.exposures.Release(id)
	if freed > 0 {
		r.sessions.Finish(s, freed-1, shm.StatusOK)
	}
	r.sessions.Unhold(s)
}

// A sweep looks at the holders of windows as well: so many cost one of its budget, and
// it looks at so many windows before it counts.
const (
	holdersASweep = 16
	windowsASweep = 16
)

// SweepExposures looks whether peers that reach windows are gone, with their operations: at
// up to n windows from number at on. It returns how many it has looked at, the cost in
// addition to those looks, and whether there are more. In a failed job it waits for no peer.
func (r *Room) SweepExposures(at, n uint32) (seen uint32, cost int, more bool) {
	seen = min(n, windowsASweep)
	more = r.exposures.Span(at, seen, func(id uint64, x *exposed) { cost += r.sweepExposure(id, x) })
	return seen, cost, more
}

func (r *Room) sweepExposure(id uint64, x *exposed) int {
	cost := x.Holders() / holdersASweep
	x.Forget(func(h expose.Holder) bool {
		return r.channel.Standing(h.Peer)&(Over|Beyond|Idle) != 0 // it was connected when it asked
	})
	if r.job.Failed() && x.Closing() {
		x.Abandon()
	}
	r.endExposure(id, x)
	return cost
}
