package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// got is a get that is served here.
type got struct {
	peer    link.Peer
	request uint64
	mem     link.Ref
	sent    uint64
	session SessionID // whose memory is held
}

// onGet begins to answer with the window's memory.
func (c *Core) onGet(p *peer, h *wire.Header) error {
	if h.B == 0 || p.served >= getWindow {
		return fmt.Errorf("%w: get of %d bytes, while %d are being answered", link.ErrProtocol, h.B, p.served)
	}
	ref, w := c.exposedPart(p, h, h.B)
	if w == nil {
		c.answerFlush(p, h.A, shm.StatusInvalid)
		return nil
	}
	c.stats.OneSided.Add(h.B)
	g, id := c.gots.Alloc()
	*g = got{peer: p.id, request: h.A, mem: ref, session: w.session.ID()}
	c.ranks.Hold(g.session)
	p.served++
	p.streams.Add(h.Src, entry{entryGot, id})
	c.touch(p)
	return nil
}

// feedGot emits the next fragment of an answer; false: it was the last.
func (c *Core) feedGot(p *peer, id uint64) bool {
	g := c.gots.Get(id)
	if g == nil {
		return false
	}
	n := min(p.fragment, g.mem.Len-g.sent)
	f, a := c.emit(p, wire.Got)
	f.Head.A, f.Head.B, f.Head.Length = g.request, g.sent, uint32(n)
	f.Payload = g.mem.Slice(g.sent, n)
	p.out.queued += n
	g.sent += n
	// The last frame takes over the hold, and its acknowledgement ends the get.
	*a = after{session: g.session, hold: true}
	if g.sent < g.mem.Len {
		c.ranks.Hold(g.session)
		return true
	}
	a.kind = afterGot
	c.gots.Release(id)
	return false
}

// dropGots forgets the gets of a dead peer.
func (c *Core) dropGots(p *peer) {
	c.gots.Each(func(id uint64, g *got) {
		if g.peer == p.id {
			c.ranks.Unhold(g.session)
			c.gots.Release(id)
		}
	})
}
