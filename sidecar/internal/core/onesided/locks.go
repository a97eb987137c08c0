package onesided

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// LockLimit bounds the locks that the ranks of one peer wait for. The memory of a lock,
// memory.LockCost, is charged to the peer until its rank waits for the lock no more, and if the
// rank gets it, until it has released it or left, or the window has been freed.
const LockLimit = 65536

// grantsAStep bounds the waiters that one step serves, and so its duration; Grant serves the
// others. releasesAStep bounds the locks that end with their window in one step.
const (
	grantsAStep   = 1024
	releasesAStep = 64
)

// lockWaiter is the request of a rank that waits for a window's lock.
type lockWaiter struct {
	peer      link.Peer
	rank      uint32
	request   uint64
	exclusive bool
}

// onLock queues a rank for the lock of a window.
func (r *Room) onLock(p *peer, h *wire.Header) error {
	w := r.window(h.Context, h.Dst)
	if w == nil {
		r.answerFlush(p.id, h.A, shm.StatusInvalid)
		return nil
	}
	if p.locks >= LockLimit {
		return fmt.Errorf("%w: more than %d open lock requests", link.ErrProtocol, LockLimit)
	}
	if err := r.channel.Charge(p.id, memory.LockCost); err != nil {
		return err
	}
	p.locks++
	w.waiting.Push(lockWaiter{p.id, h.Src, h.A, h.B == 1})
	r.grantLocks(w)
	return nil
}

// grantLocks grants the lock to waiters in the order of their requests, so that none
// starves, and to at most grantsAStep of them.
func (r *Room) grantLocks(w *window) {
	for n := 0; w.waiting.Len() > 0 && !w.closed; n++ {
		if n == grantsAStep {
			r.granting = append(r.granting, w)
			return
		}
		l := *w.waiting.First()
		if r.job.HasLeft(l.rank) {
			r.nextWaiter(w)
			continue
		}
		if w.exclusive || l.exclusive && w.holders.Len() > 0 {
			return
		}
		w.exclusive = l.exclusive
		f := r.channel.Answer(l.peer, wire.Locked)
		f.Head.A = l.request
		if w.holders.add(l.rank, r.channel.Now()) {
			r.popWaiter(w) // its charge is the holder's from now on
		} else {
			r.nextWaiter(w)
		}
	}
}

// onUnlock releases a lock of the requesting rank. If the rank holds none, its flush, which is
// the answer, reports the error.
func (r *Room) onUnlock(p *peer, h *wire.Header) {
	if w := r.window(h.Context, h.Dst); w != nil {
		switch w.holders.times(h.Src) {
		case 0:
			w.errors[h.Src] = shm.StatusInvalid
		case 1:
			r.release(w, h.Src)
		default:
			w.holders.less(h.Src)
		}
		r.grantLocks(w)
	}
	r.onFlush(p, h)
}

// release ends the lock of a rank and gives its charge back. Preconditions: the rank holds it.
func (r *Room) release(w *window, rank uint32) {
	w.holders.remove(rank)
	w.exclusive = false
	r.channel.Refund(r.podOf(rank), memory.LockCost)
}

// releaseAll ends up to budget locks of a closed window. It returns the rest of the budget.
func (r *Room) releaseAll(w *window, budget int) int {
	for ; w.holders.Len() > 0 && budget > 0; budget-- {
		r.release(w, w.holders.list[w.holders.Len()-1].rank)
	}
	return budget
}

// closeWindow removes a window, and makes FailWaiters answer its waiters and end its locks, if
// they are too many for one step.
func (r *Room) closeWindow(w *window) {
	w.closed = true
	last := len(r.windows) - 1
	r.windows[w.index] = r.windows[last]
	r.windows[w.index].index = w.index
	r.windows[last] = nil
	r.windows = r.windows[:last]
	r.leftAt = min(r.leftAt, w.index) // SweepLocks may not have visited the window that is here now
	r.releaseAll(w, releasesAStep)
	if w.waiting.Len()+w.holders.Len() > 0 {
		r.closing = append(r.closing, w)
	}
}

// Grant continues with a window whose waiters were too many for one step.
func (r *Room) Grant() {
	if n := len(r.granting); n > 0 {
		w := r.granting[n-1]
		r.granting = r.granting[:n-1]
		r.grantLocks(w)
	}
}

// FailWaiters answers waiters of closed windows with an error, and ends the locks of these windows:
// up to budget of both. It returns the rest of the budget.
func (r *Room) FailWaiters(budget int) int {
	for len(r.closing) > 0 && budget > 0 {
		w := r.closing[len(r.closing)-1]
		for ; w.waiting.Len() > 0 && budget > 0; budget-- {
			l := r.nextWaiter(w)
			r.answerFlush(l.peer, l.request, shm.StatusInvalid)
		}
		if budget = r.releaseAll(w, budget); w.waiting.Len()+w.holders.Len() == 0 {
			r.closing = r.closing[:len(r.closing)-1]
		}
	}
	return budget
}

// nextWaiter removes the request that has waited longest, and gives its charge back.
func (r *Room) nextWaiter(w *window) lockWaiter {
	l := r.popWaiter(w)
	r.channel.Refund(l.peer, memory.LockCost)
	return l
}

// popWaiter removes the request that has waited longest.
func (r *Room) popWaiter(w *window) lockWaiter {
	l := w.waiting.Pop()
	r.peer(l.peer).locks--
	return l
}
