package onesided

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/expose"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Windows of this sidecar's ranks that peers access (PROTOCOL.md §5.6).

// exposed is the memory of a window that peers access, by frames or remotely. It outlives
// the window until no peer accesses it any more.
type exposed struct {
	expose.Exposure
	session ranks.SessionID // whose memory is held
	rank    uint32
	mem     link.Ref
	peer    link.Peer // peer for which it was registered
	freed   uint32    // 1 more than the request of FreeWindow; 0: none
}

// onExpose answers a peer with key, address and length of a window.
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

// expose records a peer as holder of a window and registers the window for the first one.
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

// exposureOf returns the record of a window, which it creates if needed.
func (r *Room) exposureOf(w *window, rank uint32) *exposed {
	x := r.exposures.Get(w.exposed)
	if x == nil {
		x, w.exposed = r.exposures.Alloc()
		x.session, x.rank, x.mem = w.session, rank, w.mem
		r.sessions.Hold(x.session)
	}
	return x
}

// putEnded records that the payload of a Put has arrived, or will not arrive.
func (r *Room) putEnded(id uint64) {
	if x := r.exposures.Get(id); x != nil {
		x.Placed()
		r.endExposure(id, x)
	}
}

// Divert reports whether the payload of h, whose connection broke, must be discarded when it is
// sent again, because its window has been freed meanwhile. The next flush of the rank that has put
// it reports that.
func (r *Room) Divert(from link.Peer, of Inbound, h *wire.Header) bool {
	x := r.exposures.Get(of.ID)
	if of.Kind != InboundPut || x == nil || !x.Closing() {
		return false
	}
	r.peer(from).missed.add(h)
	r.putEnded(of.ID)
	return true
}

// Dropped records that a payload will not arrive.
func (r *Room) Dropped(of Inbound) {
	if of.Kind == InboundPut {
		r.putEnded(of.ID)
	}
}

// conceal ends the exposure of a window; false: it has none. Each holder is sent a Conceal,
// except in a failed job, and the request freed, if there is one, ends with the exposure.
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
		if r.channel.PeerState(h.Peer)&(Unreachable|Ended) != 0 {
			x.Leave(h.Peer)
			continue
		}
		f := r.channel.Emit(h.Peer, wire.Conceal)
		f.Head.Src, f.Head.Dst, f.Head.A, f.Head.B = x.rank, r.cfg.First[h.Peer], h.View, w.exposed
	}
	r.endExposure(w.exposed, x)
	return true
}

// concealCost returns what conceal counts of a step's budget: one frame for each holder.
func (r *Room) concealCost(w *window) int {
	if x := r.exposures.Get(w.exposed); x != nil && !r.job.Failed() {
		return 1 + x.Holders()
	}
	return 1
}

// onConcealed handles a peer's confirmation that it does not access a window any more.
func (r *Room) onConcealed(p *peer, h *wire.Header) error {
	x := r.exposures.Get(h.A)
	if x == nil {
		return r.exposures.Ended(h.A, "the end of")
	}
	if !x.Closing() {
		return fmt.Errorf("%w: Concealed for a window that is not being freed", link.ErrProtocol)
	}
	x.Leave(p.id) // false: a sweep has removed it, because its connection had ended
	r.endExposure(h.A, x)
	return nil
}

// endExposure frees an exposure if no peer uses it any more.
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
	if freed > 0 { // else the rank has left, and all that it keeps is given back with its session
		r.sessions.Get(s).Refund(memory.WindowCost)
		r.sessions.Finish(s, freed-1, shm.StatusOK)
	}
	r.sessions.Unhold(s)
}

// A sweep visits the holders of windows as well. holdersASweep of them cost one step of its
// budget, and windowsASweep windows are visited before the cost is counted.
const (
	holdersASweep = 16
	windowsASweep = 16
)

// SweepExposures removes holders that are gone, of up to n windows from index at. It returns
// how many windows it has visited, the cost in addition to these visits, and whether there
// are more. In a failed job it removes all holders of freed windows.
func (r *Room) SweepExposures(at, n uint32) (seen uint32, cost int, more bool) {
	seen = min(n, windowsASweep)
	more = r.exposures.Span(at, seen, func(id uint64, x *exposed) { cost += r.sweepExposure(id, x) })
	return seen, cost, more
}

func (r *Room) sweepExposure(id uint64, x *exposed) int {
	cost := x.Holders() / holdersASweep
	x.Forget(func(h expose.Holder) bool {
		return r.channel.PeerState(h.Peer)&(Ended|Unreachable|Idle) != 0 // idle: its connection has ended since its request
	})
	if r.job.Failed() && x.Closing() {
		x.Abandon()
	}
	r.endExposure(id, x)
	return cost
}
