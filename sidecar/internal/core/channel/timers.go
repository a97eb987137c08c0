package channel

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// timer is the time at which a peer has to be looked at.
type timer struct {
	at   int64
	peer link.Peer
}

// Timers is a heap, ordered by time. One timer of a peer is valid, the one that the peer knows. Each
// change to an earlier time leaves an invalid one in the heap until its time.
type Timers struct{ heap []timer }

// Len returns the number of timers.
func (h *Timers) Len() int { return len(h.heap) }

// First returns the earliest time, and its peer. Preconditions: there is a timer.
func (h *Timers) First() (at int64, p link.Peer) { return h.heap[0].at, h.heap[0].peer }

// Push adds a timer.
func (h *Timers) Push(at int64, p link.Peer) {
	h.heap = append(h.heap, timer{at, p})
	q := h.heap
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if q[up].at <= q[i].at {
			return
		}
		q[up], q[i] = q[i], q[up]
		i = up
	}
}

// Pop removes the first. Preconditions: there is a timer.
func (h *Timers) Pop() {
	q := h.heap
	n := len(q) - 1
	q[0] = q[n]
	q = q[:n]
	h.heap = q
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if q[child].at < q[least].at {
				least = child
			}
		}
		if least == i {
			return
		}
		q[least], q[i] = q[i], q[least]
		i = least
	}
}
