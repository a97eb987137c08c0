package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The sweeps end requests that wait for a rank or a peer that is gone. Each visits n states
// from index at on, and reports whether there are more.

// SweepReceives ends receives.
func (rx *receiver) SweepReceives(at, n uint32) (more bool) {
	return rx.recvs.Span(at, n, rx.sweepRecv)
}

// SweepSends ends sends.
func (tx *sender) SweepSends(at, n uint32) (more bool) { return tx.sends.Span(at, n, tx.sweepSend) }

// SweepProbes ends probes.
func (rx *receiver) SweepProbes(at, n uint32) (more bool) {
	return rx.probes.Span(at, n, rx.sweepProbe)
}

// sweepRecv ends a receive whose message will not arrive.
func (rx *receiver) sweepRecv(id uint64, r *recv) {
	switch {
	case r.offered && rx.hasCome(r):
		rx.finishOffered(r, id)
	case r.matched && r.offered:
		if p := &rx.peers[r.peer]; p.over() {
			rx.endRecv(id, r, rx.job.Lost(p.ID()))
		} else {
			rx.reconnect(p)
		}
	case !r.matched && r.pattern.Source != shm.AnySource && rx.job.HasLeft(r.pattern.Source):
		status := shm.StatusPeerLeft
		rx.sessions[r.owner.session].noteDeparted(rx.channel.Now(), r.pattern.Source)
		if r.withdrawn {
			status = r.withdrawal()
		}
		r.endpoint.space(r.coll).Cancel(r.posted)
		rx.endRecv(id, r, status)
	case r.matched && r.move.Remote != 0 && !r.move.Reading():
		if p := &rx.peers[r.peer]; p.over() {
			rx.endRecv(id, r, rx.job.Lost(p.ID()))
		} else {
			rx.reconnect(p)
		}
	}
}

// reconnect makes a connection to a peer that has sent a goodbye and whose connection has
// ended, because an answer of it is missing: the peer answers, or cannot be reached.
func (x *common) reconnect(p *peer) {
	if p.Gone() {
		x.channel.Reach(p.Peer)
	}
}

// sweepSend ends a send to a peer that answers no more.
func (tx *sender) sweepSend(id uint64, st *send) {
	if p := tx.peerOf(st.dst); p.over() {
		tx.endSend(id, st, tx.job.Lost(p.ID()), false)
	} else {
		tx.reconnect(p)
	}
}

// sweepProbe ends a probe for messages of a rank that has left.
func (rx *receiver) sweepProbe(id uint64, p *probe) {
	if p.source != shm.AnySource && rx.job.HasLeft(p.source) {
		o := p.owner
		rx.dropProbe(p.endpoint, id)
		rx.ranks.Finish(o.session, o.req, shm.StatusPeerLeft)
	}
}

// departed records the last message of a session that ended because the other rank had closed
// its session, or the context of the message.
type departed struct {
	by uint32
	at int64 // 0: there was no such message
}

// noteDeparted records that a message to or from rank by has ended because that rank has left.
func (s *session) noteDeparted(now int64, by uint32) {
	if s != nil {
		s.departed = departed{by, now}
	}
}

// Departed returns the rank because of which a message of a session has ended last, and when. at is
// 0 if there was no such message.
func (x *common) Departed(id ranks.SessionID) (by uint32, at int64) {
	s := x.sessions[id]
	return s.departed.by, s.departed.at
}

// taken returns the status of an eager send to p whose frame was acknowledged. If the receiver
// had left before the frame arrived, the message was not received.
func (tx *sender) taken(p *peer, f *link.Frame) shm.Status {
	if f.Head.Type != wire.Eager || p.took == 0 && tx.took == nil {
		return shm.StatusOK
	}
	took, is := tx.took[f.Head.Dst]
	if !is {
		took = p.took
	}
	if took == 0 || f.Head.Seq < took {
		return shm.StatusOK
	}
	return tx.job.Refusal()
}

// PodTook records that a pod which has left had received no frame from the number on.
func (tx *sender) PodTook(id link.Peer, frame uint64) {
	if p := &tx.peers[id]; p.took == 0 {
		p.took = frame
	}
}

// RankTook records the same for a rank.
func (tx *sender) RankTook(rank uint32, frame uint64) {
	if tx.took == nil {
		tx.took = map[uint32]uint64{}
	}
	tx.took[rank] = frame
}

// over reports whether p answers no frame of this generation any more.
func (p *peer) over() bool { return p.State() == channel.Dead || p.Ahead() }

// Refuse drops an eager message of a pod whose ranks are in another generation. Its credit goes
// back, because the peer has used it.
func (rx *receiver) Refuse(id link.Peer, h *wire.Header) error {
	p := &rx.peers[id]
	if uint64(h.Length) != h.A || h.A > EagerLimit {
		return errEager
	}
	if err := p.charged(h); err != nil {
		return err
	}
	rx.consumed(p, h.A)
	return nil
}

var errEager = fmt.Errorf("%w: eager message whose size is not that of its payload", link.ErrProtocol)

// Passing returns n bytes of the pool for a payload on its way to memory that a link cannot
// reach. ok is false if there are none, which only a peer that violates the protocol can
// cause.
func (rx *receiver) Passing(n uint64) (link.Ref, bool) { return rx.pool.passing(n) }

// Passed gives the result of Passing back.
func (rx *receiver) Passed(at link.Ref) { rx.pool.passed(at) }
