package onesided

import (
	"maps"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Operations that end because a peer is lost or a rank has left. Core decides when.

// Drop ends the operations that are queued for a peer, and the answers to its gets.
func (r *Room) Drop(id link.Peer, status shm.Status) {
	p := r.peers[id]
	if p == nil {
		return
	}
	r.dropServedGets(p)
	r.dropAccesses(p, status)
}

// PeerLost does what Drop does, for a peer that answers nothing any more, and also frees the
// views of its windows. Remote operations that the link has started end by themselves.
func (r *Room) PeerLost(id link.Peer, status shm.Status) {
	r.Drop(id, status)
	if p := r.peers[id]; p != nil {
		r.dropViews(p)
	}
}

// RankLeft makes SweepLocks release the locks of a rank that has left.
func (r *Room) RankLeft(rank uint32) { r.left.Push(rank) }

// CloseWindows closes the windows of a rank that has left. Each window, and each peer that is
// sent a Conceal, counts 1 of the budget. It returns the rest; 0: there may be more.
func (r *Room) CloseWindows(rank uint32, budget int) int {
	h := r.hosts[rank]
	if len(h.closing) == 0 {
		h.closing = slices.Sorted(maps.Keys(h.wins)) // a rank that has left makes no more windows
	}
	for len(h.closing) > 0 && budget > 0 {
		w := h.wins[h.closing[0]]
		budget -= min(budget, r.concealCost(w))
		delete(h.wins, h.closing[0])
		h.closing = h.closing[1:]
		r.closeWindow(w)
		r.conceal(w, 0)
	}
	return budget
}

// SweepAccesses ends operations that wait for a rank that has left or a peer that is lost,
// among n operations from index at. It reports whether there are more.
func (r *Room) SweepAccesses(at, n uint32) (more bool) { return r.origins.Span(at, n, r.sweepOrigin) }

func (r *Room) sweepOrigin(id uint64, o *origin) {
	_, waits := awaitedKind(o.op)
	switch p := r.targetPeer(o); {
	case p == allPeers:
	case waits && r.job.HasLeft(o.target):
		r.End(id, shm.StatusPeerLeft)
	case !r.mayAnswer(p):
		r.End(id, r.job.Lost(p))
	default:
		r.reconnect(p)
	}
	for i := len(o.asked) - 1; i >= 0; i-- { // a flush of all
		if p := o.asked[i]; r.channel.PeerState(p)&Ended != 0 {
			r.flushAnswered(id, o, p, r.job.Lost(p))
		} else {
			r.reconnect(p)
		}
	}
}

// reconnect connects to a peer that has said goodbye although it owes an answer: either it
// answers, or the attempt shows that it is lost.
func (r *Room) reconnect(p link.Peer) {
	if r.channel.PeerState(p)&Leaving != 0 {
		r.channel.Reach(p)
	}
}

// SweepLocks releases the locks of ranks that have left, in up to budget windows. It returns
// the rest of the budget, and whether there are more.
func (r *Room) SweepLocks(budget int) (rest int, more bool) {
	for r.left.Len() > 0 && budget > 0 {
		if r.leftAt >= len(r.windows) {
			r.left.Pop()
			r.leftAt = 0
			continue
		}
		w := r.windows[r.leftAt]
		r.leftAt++
		budget--
		rank := *r.left.First()
		if w.holders.times(rank) > 0 {
			r.release(w, rank)
		}
		r.grantLocks(w) // the first waiter may be the rank that has left
	}
	return budget, r.left.Len() > 0
}

// lostRank returns the status of operations that wait for a rank that has left or is lost.
func (r *Room) lostRank(rank uint32) shm.Status {
	if r.job.HasLeft(rank) {
		return shm.StatusPeerLeft
	}
	return r.job.Lost(r.podOf(rank))
}
