package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// lockWaiter is a rank that waits for a window's lock.
type lockWaiter struct {
	peer      link.Peer
	rank      uint32
	request   uint64
	exclusive bool
}

func (c *Core) onLock(p *peer, h *wire.Header) error {
	w := c.window(h.Context, h.Dst)
	if w == nil {
		c.answerFlush(p, h.A, shm.StatusInvalid)
		return nil
	}
	if p.locks >= lockLimit {
		return fmt.Errorf("%w: more than %d locks are waited for", link.ErrProtocol, lockLimit)
	}
	if err := p.charge(memory.LockCost); err != nil {
		return err
	}
	p.locks++
	w.waiting.Push(lockWaiter{p.id, h.Src, h.A, h.B == 1})
	c.grantLocks(w)
	return nil
}

// grantLocks serves the waiters in order, so that nobody starves, a bounded
// number of them at once.
func (c *Core) grantLocks(w *window) {
	for n := 0; w.waiting.Len() > 0 && !w.closed; n++ {
		if n == advanceItems {
			c.granting = append(c.granting, w)
			return
		}
		l := *w.waiting.First()
		if c.hasLeft(l.rank) {
			w.nextWaiter(c)
			continue
		}
		if w.exclusive || l.exclusive && len(w.holders) > 0 {
			return
		}
		w.exclusive = l.exclusive
		if w.holders[l.rank]++; w.holders[l.rank] == 1 {
			w.since[l.rank] = c.now
		}
		f := c.answer(&c.peers[l.peer], wire.Locked)
		f.Head.A = l.request
		w.nextWaiter(c)
	}
}

// onUnlock ends a lock of the rank that asks. One that holds none must not end
// another's: it is told of its mistake.
func (c *Core) onUnlock(p *peer, h *wire.Header) {
	if w := c.window(h.Context, h.Dst); w != nil {
		switch n := w.holders[h.Src]; n {
		case 0:
			w.errors[h.Src] = shm.StatusInvalid
		case 1:
			w.release(h.Src)
		default:
			w.holders[h.Src] = n - 1
		}
		c.grantLocks(w)
	}
	c.onFlush(p, h)
}

// release ends the lock of a rank.
func (w *window) release(rank uint32) {
	delete(w.holders, rank)
	delete(w.since, rank)
	w.exclusive = false
}

// closeWindow disappoints those who wait for the lock of a window that is gone,
// in steps (Advance).
func (c *Core) closeWindow(w *window) {
	w.closed = true
	last := len(c.windows) - 1
	c.windows[w.place] = c.windows[last]
	c.windows[w.place].place = w.place
	c.windows[last] = nil
	c.windows = c.windows[:last]
	if x := &c.parting; x.table == sweepsLocks {
		x.at = min(x.at, uint32(w.place)) // where there is one now that the sweep may not have seen
	}
	if w.waiting.Len() > 0 {
		c.closing = append(c.closing, w)
	}
}

// grant goes on with windows whose waiters were too many for one step.
func (c *Core) grant() {
	if n := len(c.granting); n > 0 {
		w := c.granting[n-1]
		c.granting = c.granting[:n-1]
		c.grantLocks(w)
	}
}

// disappoint answers up to budget waiters of windows that are gone, and returns
// what is left of the budget.
func (c *Core) disappoint(budget int) int {
	for len(c.closing) > 0 && budget > 0 {
		w := c.closing[len(c.closing)-1]
		for ; w.waiting.Len() > 0 && budget > 0; budget-- {
			l := w.nextWaiter(c)
			c.answerFlush(&c.peers[l.peer], l.request, shm.StatusInvalid)
		}
		if w.waiting.Len() == 0 {
			c.closing = c.closing[:len(c.closing)-1]
		}
	}
	return budget
}

// nextWaiter takes the one who has waited longest.
func (w *window) nextWaiter(c *Core) lockWaiter {
	l := w.waiting.Pop()
	p := &c.peers[l.peer]
	p.locks--
	p.allowed.Add(&p.kept, -memory.LockCost)
	return l
}
