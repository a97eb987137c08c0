package channel

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// timer says when to look at a peer.
type timer struct {
	at   int64
	peer link.Peer
}

// Timers is a heap: the first is the one whose time comes first. Each peer has
// one that counts, which the peer knows, and for each change to a state with a shorter
// patience one that is left over until its time.
type Timers struct{ heap []timer }

// Len is how many there are.
func (h *Timers) Len() int { return len(h.heap) }

// First is the time that comes first, and its peer. Preconditions: there is one.
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

// Pop takes out the first. Preconditions: there is one.
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
