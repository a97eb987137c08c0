package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// EndRequest ends a request of a rank that leaves, or whose job has failed. The request stays
// open if an event in flight ends it: the acknowledgement of a frame, or a peer's last frame
// about it. clean means that the rank has detached in good order. is reports whether the
// request is of a message.
func (rm *Room) EndRequest(id ranks.SessionID, req uint32, clean bool) (is bool) {
	s := rm.sessions[id]
	switch q := s.Request(req); q.Kind {
	case ranks.RequestSend:
		if st := rm.sends.Get(q.ID); st != nil && q.ID != 0 && !rm.orphan(clean, st) {
			rm.cancelSend(q.ID, st)
		}
	case ranks.RequestRecv:
		if r := rm.recvs.Get(q.ID); r != nil {
			rm.cancelRecv(q.ID, r, shm.StatusAborted)
		}
	case ranks.RequestProbe:
		rm.dropProbe(s.endpoint, q.ID)
		rm.ranks.Finish(s.ID(), req, shm.StatusAborted)
	default:
		return false
	}
	return true
}

// EndSilent ends up to budget silent sends of an application. It returns the rest of the
// budget, and whether there are more of them.
func (tx *sender) EndSilent(id ranks.SessionID, clean bool, budget int) (left int, more bool) {
	s := tx.sessions[id]
	for i := len(s.silent) - 1; i >= 0 && budget > 0; i-- {
		// From the end, so that each send that stays is visited once.
		if st := tx.sends.Get(s.silent[i]); st != nil && !tx.orphan(clean, st) {
			tx.cancelSend(s.silent[i], st)
		} else {
			s.silent = s.silent[:i]
		}
		budget--
	}
	return budget, len(s.silent) > 0
}

// orphan lets a send outlive its session, if the rank has detached in good order and the engine
// has the bytes.
func (tx *sender) orphan(clean bool, st *send) bool {
	if !clean || st.held || st.staged || st.sync {
		return false
	}
	st.orphan = true
	tx.orphans++
	tx.ranks.Outlive(st.owner.session)
	return true
}

// cancelSend ends a send before its receiver has all of it. A receiver that waits for a part
// of it is notified now; one that asks later is notified then (onPull).
func (tx *sender) cancelSend(id uint64, st *send) {
	if st.move.Open() && !tx.job.Failed() {
		tx.sendEnded(tx.peerOf(st.dst), st.move.Remote)
	}
	tx.endSend(id, st, shm.StatusAborted, false)
}

// sendEnded notifies a receiver that the payload that it has requested will not arrive.
func (x *common) sendEnded(p *peer, request uint64) {
	if p.over() {
		return
	}
	f := x.channel.Answer(p.Peer, wire.Ended)
	f.Head.A, f.Head.B = request, uint64(x.job.Refusal())
}

// cancelRecv ends a receive that is not complete. If it had matched a message, the message's
// sender is notified that there is no receive any more.
func (rx *receiver) cancelRecv(id uint64, r *recv, status shm.Status) {
	if r.offered && !rx.hasCome(r) {
		rx.unmet[id] = true
	}
	if !r.matched {
		r.endpoint.space(r.coll).Cancel(r.posted)
	} else if r.move.Remote != 0 && !rx.job.Failed() {
		if r.move.Reading() {
			// The link still reads from the sender, which is notified when the read has ended.
			rx.remotes.Get(r.token).refuse = true
		} else {
			rx.sendFin(&rx.peers[r.peer], r.move.Remote, shm.StatusPeerLeft)
		}
	}
	rx.endRecv(id, r, status)
}

func (x *common) sendFin(p *peer, remote uint64, status shm.Status) {
	if p.over() {
		return
	}
	f := x.channel.Answer(p.Peer, wire.Fin)
	f.Head.A, f.Head.B = remote, uint64(status)
}

// EndRank refuses up to budget messages for a rank that has left. It returns the rest of the
// budget.
func (rx *receiver) EndRank(rank uint32, budget int) int {
	e := rx.endpoints[rank]
	for len(e.claimed) > 0 {
		if budget == 0 {
			return 0
		}
		budget--
		id := e.claimed[len(e.claimed)-1]
		rx.refuseParked(id, rx.parked.Get(id), shm.StatusPeerLeft)
	}
	for _, coll := range []bool{false, true} {
		q := e.space(coll)
		q.EachParked(func(h uint32) bool {
			if budget == 0 {
				return false
			}
			budget--
			m, id := rx.parked.At(h)
			q.Drop(m.ref)
			rx.refuseParked(id, m, shm.StatusPeerLeft)
			return true
		})
	}
	if budget > 0 {
		e.queue, e.colls = match.New(), match.New() // gives their memory back
	}
	return budget
}

// refuseParked ends a message that no receive will take. Its sender is notified, and its
// memory and credit are given back.
func (rx *receiver) refuseParked(id uint64, m *message, status shm.Status) {
	if t, waits := rx.refusalOf(m); waits {
		// This frame is not accounted as an answer: the peer has not asked for it, and all
		// messages of a rank that has left end at once.
		f, _ := rx.channel.Emit(rx.peers[m.peer].Peer, t)
		refusing(&f.Head, &m.head, status)
	}
	rx.dropClaim(m)
	if m.arriving {
		m.dropped = true // freed when it is here
	} else {
		rx.freeMessage(id, m)
	}
}
