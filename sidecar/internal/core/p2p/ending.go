package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// EndRequest ends a request of a rank that leaves, or whose job has failed. It stays open when
// something under way ends it: the acknowledgement of a frame, or the last word of a peer. clean
// says that the rank has said goodbye. is reports whether the request is a message's.
func (rm *Room) EndRequest(id ranks.SessionID, req uint32, clean bool) (is bool) {
	s := rm.sessions[id]
	switch q := s.Request(req); q.Kind {
	case ranks.RequestSend:
		if st := rm.sends.Get(q.ID); st != nil && q.ID != 0 && !rm.orphan(clean, st) {
			rm.forsake(q.ID, st)
		}
	case ranks.RequestRecv:
		if r := rm.recvs.Get(q.ID); r != nil {
			rm.abandon(q.ID, r, shm.StatusAborted)
		}
	case ranks.RequestProbe:
		rm.dropProbe(s.endpoint, q.ID)
		rm.ranks.Finish(s.ID(), req, shm.StatusAborted)
	default:
		return false
	}
	return true
}

// EndSilent ends up to budget silent sends of an application. It returns what is left of the
// budget, and whether there are more of them.
func (tx *sender) EndSilent(id ranks.SessionID, clean bool, budget int) (left int, more bool) {
	s := tx.sessions[id]
	for i := len(s.silent) - 1; i >= 0 && budget > 0; i-- {
		// From the end, so that those that stay are passed once.
		if st := tx.sends.Get(s.silent[i]); st != nil && !tx.orphan(clean, st) {
			tx.forsake(s.silent[i], st)
		} else {
			s.silent = s.silent[:i]
		}
		budget--
	}
	return budget, len(s.silent) > 0
}

// orphan lets a send outlive its session whose bytes are the engine's own: it
// said goodbye after it had sent them.
func (tx *sender) orphan(clean bool, st *send) bool {
	if !clean || st.held || st.staged || st.sync {
		return false
	}
	st.orphan = true
	tx.orphans++
	return true
}

// forsake ends a send that its receiver has not taken over. One that waits for a
// part of it is told; one that asks later is told then (onPull).
func (tx *sender) forsake(id uint64, st *send) {
	if st.move.Open() && !tx.job.Failed() {
		tx.tellEnded(tx.peerOf(st.dst), st.move.Remote)
	}
	tx.endSend(id, st, shm.StatusAborted, false)
}

// tellEnded tells a receiver that what it has asked for does not come.
func (x *common) tellEnded(p *peer, request uint64) {
	if p.over() {
		return
	}
	f := x.channel.Answer(p.Peer, wire.Ended)
	f.Head.A, f.Head.B = request, uint64(x.job.Refusal())
}

// abandon ends a receive that is not complete. The sender of a message that it
// had matched is told that nobody waits for it any more.
func (rx *receiver) abandon(id uint64, r *recv, status shm.Status) {
	if r.offered && !rx.hasCome(r) {
		rx.unmet[id] = true
	}
	if !r.matched {
		r.endpoint.space(r.coll).Cancel(r.posted)
	} else if r.move.Remote != 0 && !rx.job.Failed() {
		if r.move.Reading() {
			// The link still reads from the sender: it is told then.
			rx.remotes.Get(r.token).refuse = true
		} else {
			rx.tellFin(&rx.peers[r.peer], r.move.Remote, shm.StatusPeerLeft)
		}
	}
	rx.endRecv(id, r, status)
}

func (x *common) tellFin(p *peer, remote uint64, status shm.Status) {
	if p.over() {
		return
	}
	f := x.channel.Answer(p.Peer, wire.Fin)
	f.Head.A, f.Head.B = remote, uint64(status)
}

// EndRank refuses up to budget messages for a rank that has left. It returns what is left of the
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
		e.queue, e.colls = match.New(), match.New() // their memory goes
	}
	return budget
}

// refuseParked ends a message that nobody will receive: its sender is told, its
// memory and credit go back.
func (rx *receiver) refuseParked(id uint64, m *message, status shm.Status) {
	if t, waits := rx.refusalOf(m); waits {
		// No answer: the peer has not asked for it, a rank has left, and all of its
		// messages end at once.
		f, _ := rx.channel.Emit(rx.peers[m.peer].Peer, t)
		refusing(&f.Head, &m.head, status)
	}
	rx.unclaim(m)
	if m.arriving {
		m.dropped = true // freed when it is here
	} else {
		rx.freeMessage(id, m)
	}
}
