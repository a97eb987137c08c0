package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/expose"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Windows of this sidecar's ranks that peers reach remotely (P§5.6).

// exposed is the memory of a window that peers write to, by frames or remotely. It
// outlives the window until nobody reaches for it any more.
type exposed struct {
	expose.Exposure
	session SessionID // whose memory is held
	rank    uint32
	mem     link.Ref
	peer    link.Peer // that it was registered for
	freed   uint32    // request that ends with it, plus 1; 0: none
}

// onExpose tells a peer where a window lies.
func (c *Core) onExpose(p *peer, h *wire.Header) error {
	if _, err := c.hostedBy(p, h); err != nil {
		return err
	}
	body := wire.ExposedBody{}
	w := c.window(h.Context, h.Dst)
	if w != nil {
		if err := c.expose(p, w, h); err != nil {
			return err
		}
		x := c.exposures.Get(w.exposed)
		body.Len = x.mem.Len
		if key, ok := x.Key(); ok {
			body.Key, body.Addr = key.Key, key.Addr
		}
	}
	f := c.answer(p, wire.Exposed)
	f.Head.A = h.A
	if w == nil {
		f.Head.B = 1
	}
	f.Head.Length = uint32(body.Encode(f.Inline[:]))
	return nil
}

// expose notes a peer that asks for a window, and registers that for the first one.
func (c *Core) expose(p *peer, w *window, h *wire.Header) error {
	x := c.exposureOf(w, h.Dst)
	register, err := x.Ask(expose.Holder{Peer: p.id, View: h.A})
	if err != nil || !register || w.mem.Len == 0 || !p.caps.Register {
		return err
	}
	if key, err := c.ports.Expose(p.id, w.mem); err != nil {
		c.stats.Unregistered++
	} else {
		x.peer = p.id
		x.Registered(key)
		c.stats.Exposed++
		c.stats.Reachable++
	}
	return nil
}

// exposureOf is the record of a window that others write to.
func (c *Core) exposureOf(w *window, rank uint32) *exposed {
	x := c.exposures.Get(w.exposed)
	if x == nil {
		x, w.exposed = c.exposures.Alloc()
		x.session, x.rank, x.mem = w.session.ID(), rank, w.mem
		c.ranks.Hold(x.session)
	}
	return x
}

// landed notes that the payload of a Put is in its window, or comes no more.
func (c *Core) landed(id uint64) {
	if x := c.exposures.Get(id); x != nil {
		x.Placed()
		c.endExposure(id, x)
	}
}

// divert lets the payload of a Put that was cut off come again to where nobody reads
// it, if its window has ended meanwhile.
func (c *Core) divert(p *peer) {
	in := &p.in
	x := c.exposures.Get(in.id)
	if !in.active || in.kind != placePut || x == nil || !x.Closing() {
		return
	}
	id, s := in.id, in.session
	in.kind, in.id, in.hold = placeDiscard, 0, false
	in.dst = link.Ref{Region: RegionDiscard, Len: uint64(in.head.Length)}
	c.landed(id)
	c.ranks.Unhold(s)
}

// conceal begins the end of a window's exposure; false: it is not exposed. The
// request, if there is one, ends with it. In a failed job nobody is asked.
func (c *Core) conceal(w *window, freed uint32) bool {
	x := c.exposures.Get(w.exposed)
	if x == nil {
		return false
	}
	x.freed = freed
	holders := x.Close()
	if c.fail != nil {
		holders = nil
		x.Abandon()
	}
	for i := len(holders) - 1; i >= 0; i-- {
		h := holders[i]
		p := &c.peers[h.Peer]
		if beyond(p) || c.over(p) {
			x.Leave(h.Peer)
			continue
		}
		f, _ := c.emit(p, wire.Conceal)
		f.Head.Src, f.Head.Dst, f.Head.A, f.Head.B = x.rank, c.firstRank(p), h.View, w.exposed
	}
	c.endExposure(w.exposed, x)
	return true
}

// concealCost is what conceal counts of a step's budget: each holder is told.
func (c *Core) concealCost(w *window) int {
	if x := c.exposures.Get(w.exposed); x != nil && c.fail == nil {
		return 1 + x.Holders()
	}
	return 1
}

// onConcealed notes that a peer does not reach for a window any more.
func (c *Core) onConcealed(p *peer, h *wire.Header) error {
	x := c.exposures.Get(h.A)
	if x == nil {
		return c.exposures.Ended(h.A, "the end of")
	}
	if !x.Closing() {
		return fmt.Errorf("%w: the end of a window that has not ended", link.ErrProtocol)
	}
	x.Leave(p.id) // else its connection has ended meanwhile
	c.endExposure(h.A, x)
	return nil
}

// endExposure ends the registration that nobody uses any more.
func (c *Core) endExposure(id uint64, x *exposed) {
	if !x.Over() {
		return
	}
	if key, ok := x.Key(); ok {
		c.ports.Deregister(x.peer, key)
		c.stats.Reachable--
	}
	s, freed := x.session, x.freed
	c.exposures.Release(id)
	if freed > 0 {
		c.ranks.Finish(s, freed-1, shm.StatusOK)
	}
	c.ranks.Unhold(s)
}

// A sweep looks at the holders of windows as well: so many cost one of its budget, and
// it looks at so many windows before it counts.
const (
	holdersASweep = 16
	windowsASweep = 16
)

// sweepExposure notes which peers are gone, with their operations, and returns what
// that cost. In a failed job nobody is waited for.
func (c *Core) sweepExposure(id uint64, x *exposed) int {
	cost := x.Holders() / holdersASweep
	x.Forget(func(h expose.Holder) bool {
		p := &c.peers[h.Peer]
		return c.over(p) || p.state == peerDenied || p.state == peerIdle // it was connected when it asked
	})
	if c.fail != nil && x.Closing() {
		x.Abandon()
	}
	c.endExposure(id, x)
	return cost
}
