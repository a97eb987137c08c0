package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// What ends because a peer is lost or a rank has left. The top of the core decides when.

// Drop ends what is still to be said to a peer, and what is still to be answered to it.
func (r *Room) Drop(id link.Peer, status shm.Status) {
	p := r.peers[id]
	if p == nil {
		return
	}
	r.dropGots(p)
	r.dropAccesses(p, status)
}

// PeerLost is Drop for a peer that answers nothing any more: its windows are forgotten, too.
// Remote operations under way end by themselves.
func (r *Room) PeerLost(id link.Peer, status shm.Status) {
	r.Drop(id, status)
	if p := r.peers[id]; p != nil {
		r.dropViews(p)
	}
}

// RankLeft notes that nothing of a rank will come any more: SweepLocks ends its locks.
func (r *Room) RankLeft(rank uint32) { r.left.Push(rank) }

// CloseWindows ends the windows of a rank that has left: up to budget of them, and of the
// peers that are told. It returns what is left of the budget, 0 if there are more.
func (r *Room) CloseWindows(rank uint32, budget int) int {
	for number, w := range r.hosts[rank].wins {
		if budget == 0 {
			return 0
		}
		budget -= min(budget, r.concealCost(w))
		delete(r.hosts[rank].wins, number)
		r.closeWindow(w)
		r.conceal(w, 0)
	}
	return budget
}

// SweepAccesses ends operations that wait for ranks or peers that have left or are lost: it looks at n from
// number at on, and returns whether there are more.
func (r *Room) SweepAccesses(at, n uint32) (more bool) { return r.origins.Span(at, n, r.sweepOrigin) }

func (r *Room) sweepOrigin(id uint64, o *origin) {
	_, waits := awaited(o.op)
	switch p := r.podOfTarget(o); {
	case p == everywhere:
	case waits && r.job.HasLeft(o.target):
		r.End(id, shm.StatusPeerLeft)
	case !r.answers(p):
		r.End(id, r.job.Lost(p))
	default:
		r.chase(p)
	}
	for i := len(o.asked) - 1; i >= 0; i-- { // a flush of all
		if p := o.asked[i]; r.channel.Standing(p)&Over != 0 {
			r.flushAnswered(id, o, p, r.job.Lost(p))
		} else {
			r.chase(p)
		}
	}
}

// chase calls a peer again that has said goodbye and whose connection has ended,
// because it still owes something: it answers, or turns out to be gone.
func (r *Room) chase(p link.Peer) {
	if r.channel.Standing(p)&Bye != 0 {
		r.channel.Reach(p)
	}
}

// SweepLocks ends the locks of ranks that have left without unlocking, of up to
// budget windows, and returns what is left of the budget, and whether there are more.
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
		if w.holders[rank] > 0 {
			w.release(rank)
		}
		r.grantLocks(w) // the first who waits may be the one that has left
	}
	return budget, r.left.Len() > 0
}

// lostRank is the status of what waits for a rank that is gone.
func (r *Room) lostRank(rank uint32) shm.Status {
	if r.job.HasLeft(rank) {
		return shm.StatusPeerLeft
	}
	return r.job.Lost(r.podOf(rank))
}
