package onesided

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// LockLimit bounds the locks that the ranks of one peer wait for, and so their memory
// (memory.LockCost each).
const LockLimit = 65536

// grantsAStep bounds the waiters that one step serves, and so its duration; Grant serves the
// others.
const grantsAStep = 1024

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
		if w.exclusive || l.exclusive && len(w.holders) > 0 {
			return
		}
		w.exclusive = l.exclusive
		if w.holders[l.rank]++; w.holders[l.rank] == 1 {
			w.since[l.rank] = r.channel.Now()
		}
		f := r.channel.Answer(l.peer, wire.Locked)
		f.Head.A = l.request
		r.nextWaiter(w)
	}
}

// onUnlock releases a lock of the requesting rank. If the rank holds none, its flush, which is
// the answer, reports the error.
func (r *Room) onUnlock(p *peer, h *wire.Header) {
	if w := r.window(h.Context, h.Dst); w != nil {
		switch n := w.holders[h.Src]; n {
		case 0:
			w.errors[h.Src] = shm.StatusInvalid
		case 1:
			w.release(h.Src)
		default:
			w.holders[h.Src] = n - 1
		}
		r.grantLocks(w)
	}
	r.onFlush(p, h)
}

// release removes a rank from the holders.
func (w *window) release(rank uint32) {
	delete(w.holders, rank)
	delete(w.since, rank)
	w.exclusive = false
}

// closeWindow removes a window, and makes FailWaiters answer its waiters.
func (r *Room) closeWindow(w *window) {
	w.closed = true
	last := len(r.windows) - 1
	r.windows[w.index] = r.windows[last]
	r.windows[w.index].index = w.index
	r.windows[last] = nil
	r.windows = r.windows[:last]
	r.leftAt = min(r.leftAt, w.index) // SweepLocks may not have visited the window that is here now
	if w.waiting.Len() > 0 {
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

// FailWaiters answers up to budget waiters of closed windows with an error. It returns the
// rest of the budget.
func (r *Room) FailWaiters(budget int) int {
	for len(r.closing) > 0 && budget > 0 {
		w := r.closing[len(r.closing)-1]
		for ; w.waiting.Len() > 0 && budget > 0; budget-- {
			l := r.nextWaiter(w)
			r.answerFlush(l.peer, l.request, shm.StatusInvalid)
		}
		if w.waiting.Len() == 0 {
			r.closing = r.closing[:len(r.closing)-1]
		}
	}
	return budget
}

// nextWaiter removes the request that has waited longest.
func (r *Room) nextWaiter(w *window) lockWaiter {
	l := w.waiting.Pop()
	r.peer(l.peer).locks--
	r.channel.Refund(l.peer, memory.LockCost)
	return l
}
