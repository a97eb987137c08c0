package core

import (
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// patience is how long a peer may be without a connection.
func (c *Core) patience(p *peer) time.Duration {
	if p.known || c.fail != nil { // it is to tell others, and they cannot wait until it starts
		return c.cfg.DeadAfter
	}
	return c.cfg.StartWithin
}

// timer says when to look at a peer.
type timer struct {
	at   int64
	peer link.Peer
}

// timers is a heap: the first is the one whose time comes first. Each peer has
// one that counts (peer.timerAt), and for each change to a state with a shorter
// patience one that is left over until its time.
type timers []timer

func (h *timers) push(t timer) {
	*h = append(*h, t)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if q[up].at <= q[i].at {
			return
		}
		q[up], q[i] = q[i], q[up]
		i = up
	}
}

func (h *timers) pop() {
	q := *h
	n := len(q) - 1
	q[0] = q[n]
	*h = q[:n]
	q = q[:n]
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
