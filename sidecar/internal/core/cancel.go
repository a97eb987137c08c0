package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// submitCancel ends a request that nothing has happened to yet; any other goes
// on to its own end (L§5). Either way the application sees one OpDone.
func (c *Core) submitCancel(s *session, d *shm.Descriptor) error {
	switch q := s.Request(d.Req); q.Kind { // it may have ended already
	case ranks.RequestRecv:
		switch r := c.recvs.Get(q.ID); {
		case r == nil || r.matched:
		case r.offered:
			c.withdraw(r, q.ID)
		case s.endpoint.queue.Cancel(r.posted):
			c.endRecv(q.ID, r, shm.StatusCancelled)
		}
	case ranks.RequestProbe:
		c.dropProbe(s.endpoint, q.ID)
		c.ranks.Finish(s.ID(), d.Req, shm.StatusCancelled)
	case ranks.RequestSend:
		c.retract(q.ID)
	}
	return nil
}

// dropProbe forgets a waiting probe, if there is one of that id.
func (c *Core) dropProbe(e *endpoint, id uint64) {
	if p := c.probes.Get(id); p != nil {
		e.probes.Cancel(p.posted)
		c.probes.Release(id)
	}
}

// retract asks for a message back that the receiver may not have matched yet
// (P§5.5).
func (c *Core) retract(id uint64) {
	st := c.sends.Get(id)
	if st == nil || st.retract || st.move.Asked() {
		return
	}
	st.retract = true
	p := c.peerOf(st.dst)
	if !c.sayRetract(p, id, st) {
		p.Add(st.src, channel.Transfer{Kind: transferRetract, ID: id})
	}
}

// sayRetract asks for a message back; false: as many as may be asked for are not
// answered.
func (c *Core) sayRetract(p *peer, id uint64, st *send) bool {
	if p.retracts >= retractWindow {
		return false
	}
	p.retracts++
	f, _ := c.channel.Emit(p.Peer, wire.Retract)
	f.Head.A, f.Head.Src, f.Head.Dst = id, st.src, st.dst
	return true
}

// feedRetract asks for a message back that had to wait; true: it has to go on
// waiting.
func (c *Core) feedRetract(p *peer, id uint64) bool {
	st := c.sends.Get(id)
	return st != nil && !st.move.Asked() && !c.sayRetract(p, id, st)
}

// retractable names a parked message that its sender may want back.
type retractable struct {
	peer    link.Peer
	request uint64 // the sender's
}

// retractKey is the name of m; false: its sender has let go of it.
func (m *message) retractKey() (retractable, bool) {
	kept := !m.eager || m.head.Flags&wire.FlagSync != 0
	return retractable{m.peer, m.head.B}, kept && !m.coll
}

// onRetract takes an unmatched message out again.
func (c *Core) onRetract(p *peer, h *wire.Header) error {
	e, err := c.hostedBy(p, h)
	if err != nil {
		return err
	}
	found := uint64(0)
	id := c.retractables[retractable{p.ID(), h.A}]
	if m := c.parked.Get(id); m != nil && m.endpoint == e && !m.arriving && !m.claimed && e.queue.Drop(m.ref) {
		c.freeMessage(id, m)
		found = 1
	}
	f := c.channel.Answer(p.Peer, wire.Retracted)
	f.Head.A, f.Head.B = h.A, found
	return nil
}

func (c *Core) onRetracted(p *peer, h *wire.Header) error {
	if p.retracts == 0 {
		return fmt.Errorf("%w: answer to a cancel that nobody asked for", link.ErrProtocol)
	}
	p.retracts--
	c.channel.Wake(p.Peer)
	st := c.sends.Get(h.A)
	if st == nil {
		return c.sends.Ended(h.A, "an answer to a cancel of")
	}
	if !st.retract || c.peerOf(st.dst) != p {
		return fmt.Errorf("%w: answer to a cancel that nobody asked for", link.ErrProtocol)
	}
	if h.B == 1 {
		c.endSend(h.A, st, shm.StatusCancelled, true)
	}
	return nil
}
