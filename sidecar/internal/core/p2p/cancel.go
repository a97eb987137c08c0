package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// submitCancel ends a request that is not matched yet; any other request continues to its own end
// (L§5). In both cases the application gets one OpDone.
func (rm *Room) submitCancel(s *session, d *shm.Descriptor) error {
	switch q := s.Request(d.Req); q.Kind { // it may have ended already
	case ranks.RequestRecv:
		switch r := rm.recvs.Get(q.ID); {
		case r == nil || r.matched:
		case r.offered:
			rm.withdrawOffer(r, q.ID)
		case s.endpoint.queue.Cancel(r.posted):
			rm.endRecv(q.ID, r, shm.StatusCancelled)
		}
	case ranks.RequestProbe:
		rm.dropProbe(s.endpoint, q.ID)
		rm.ranks.Finish(s.ID(), d.Req, shm.StatusCancelled)
	case ranks.RequestSend:
		rm.retract(q.ID)
	}
	return nil
}

// dropProbe removes the waiting probe with an id, if there is one.
func (rx *receiver) dropProbe(e *endpoint, id uint64) {
	if p := rx.probes.Get(id); p != nil {
		e.probes.Cancel(p.posted)
		rx.probes.Release(id)
	}
}

// retract asks the receiver to give a message back, if it has not matched it (P§5.5).
func (tx *sender) retract(id uint64) {
	st := tx.sends.Get(id)
	if st == nil || st.retract || st.move.Asked() {
		return
	}
	st.retract = true
	p := tx.peerOf(st.dst)
	if !tx.sendRetract(p, id, st) {
		p.Add(st.src, channel.Transfer{Kind: transferRetract, ID: id})
	}
}

// sendRetract sends that request. It reports false if RetractWindow requests are unanswered.
func (tx *sender) sendRetract(p *peer, id uint64, st *send) bool {
	if p.retracts >= RetractWindow {
		return false
	}
	p.retracts++
	f, _ := tx.channel.Emit(p.Peer, wire.Retract)
	f.Head.A, f.Head.Src, f.Head.Dst = id, st.src, st.dst
	return true
}

// feedRetract sends a request that had to wait. It reports whether it has to wait longer.
func (tx *sender) feedRetract(p *peer, id uint64) bool {
	st := tx.sends.Get(id)
	return st != nil && !st.move.Asked() && !tx.sendRetract(p, id, st)
}

// retractable is the key of a parked message that its sender may ask for.
type retractable struct {
	peer    link.Peer
	request uint64 // request of the sender
}

// retractKey returns the key of m. ok is false if the send of m has ended.
func (m *message) retractKey() (retractable, bool) {
	kept := !m.eager || m.head.Flags&wire.FlagSync != 0
	return retractable{m.peer, m.head.B}, kept && !m.coll
}

// onRetract removes an unmatched message, and answers whether there was one.
func (rx *receiver) onRetract(p *peer, h *wire.Header) error {
	e, err := rx.hostedBy(p, h)
	if err != nil {
		return err
	}
	found := uint64(0)
	id := rx.retractables[retractable{p.ID(), h.A}]
	if m := rx.parked.Get(id); m != nil && m.endpoint == e && !m.arriving && !m.claimed && e.queue.Drop(m.ref) {
		rx.freeMessage(id, m)
		found = 1
	}
	f := rx.channel.Answer(p.Peer, wire.Retracted)
	f.Head.A, f.Head.B = h.A, found
	return nil
}

func (tx *sender) onRetracted(p *peer, h *wire.Header) error {
	if p.retracts == 0 {
		return fmt.Errorf("%w: answer to a cancel that was not sent", link.ErrProtocol)
	}
	p.retracts--
	tx.channel.Wake(p.Peer)
	st := tx.sends.Get(h.A)
	if st == nil {
		return tx.sends.Ended(h.A, "an answer to a cancel of")
	}
	if !st.retract || tx.peerOf(st.dst) != p {
		return fmt.Errorf("%w: answer to a cancel that was not sent", link.ErrProtocol)
	}
	if h.B == 1 {
		tx.endSend(h.A, st, shm.StatusCancelled, true)
	}
	return nil
}
