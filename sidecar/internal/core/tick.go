package core

import (
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Tick does what time alone brings about: late acknowledgements, heartbeats,
// and the end of peers that have been silent or unreachable for too long. It
// returns when it wants to be called again; 0: no timer runs. It looks at the
// peers whose time has come and at those that are owed an acknowledgement, and
// at no others.
func (c *Core) Tick(now int64) (next int64) {
	c.now = now
	c.forgiveOwnAbsence()
	due := func(t int64) {
		if next == 0 || t < next {
			next = t
		}
	}
	c.tickLeft(due)
	c.tickOwed(due)
	for c.timers.Len() > 0 {
		at, id := c.timers.First()
		if at > now {
			due(at)
			break
		}
		c.timers.Pop()
		if p := &c.peers[id]; p.timerAt == at { // else an earlier one took its place
			p.timerAt = 0
			c.tickPeer(p)
			c.watch(p)
		}
	}
	soon := now + int64(c.cfg.Heartbeat)
	if next == 0 { // nobody is waited for yet: what is asked for meanwhile may be heard of late
		c.tickDue = soon
		return 0
	}
	// However far the first deadline is: up to there no absence would be seen, and a sidecar
	// that was stopped before would find the time of all whom it calls to be up.
	c.tickDue = min(next, soon)
	return c.tickDue
}

// absence is from where on it counts that Tick is called later than it asked for.
const absence = int64(20 * time.Millisecond)

// forgiveOwnAbsence does not hold against peers the time in which this sidecar
// itself did not run: it was stopped, or waited for a processor, and has heard nobody. On
// a machine with far more to do than it can, that is most of the time, in parts of some
// 100 ms, and a peer there has no more of it.
func (c *Core) forgiveOwnAbsence() {
	late := c.now - c.tickDue
	if c.tickDue == 0 || late < absence {
		return
	}
	for i := range c.peers {
		p := &c.peers[i]
		p.heardAt = min(p.heardAt+late, c.now)
		if p.downAt != 0 {
			p.downAt = min(p.downAt+late, c.now)
		}
	}
}

// watch sets the timer of a peer that has come into a state with one. Frames
// only put its time off, which the timer finds out when it comes.
func (c *Core) watch(p *peer) {
	if at := c.deadline(p); at != 0 && (p.timerAt == 0 || at < p.timerAt) {
		p.timerAt = at
		c.timers.Push(at, p.id)
	}
}

// deadline is when a peer has to be looked at if nothing happens before. The own
// one sends no heartbeats: it is looked at when its outbox has grown.
func (c *Core) deadline(p *peer) int64 {
	if p.self {
		if !p.out.Large() {
			return 0
		}
		return p.sentAt + int64(c.cfg.Heartbeat)
	}
	at := c.limit(p)
	switch p.state {
	case peerConnecting:
		if p.redialAt != 0 {
			at = min(at, p.redialAt)
		}
	case peerGreeting, peerReady:
		at = min(at, p.sentAt+int64(c.cfg.Heartbeat))
	}
	return at
}

// limit is when a peer of which nothing is heard is given up; 0: never.
func (c *Core) limit(p *peer) int64 {
	since, patience := p.heardAt, c.cfg.DeadAfter
	switch p.state {
	case peerConnecting:
		since, patience = p.downAt, c.patience(p)
		if !p.known && c.fail != nil {
			since = max(since, c.fail.At)
		}
	case peerGreeting, peerReady:
		if p.downAt != 0 { // not yet heard on this connection
			since = p.downAt
		}
	case peerDenied:
		since = p.downAt
	default:
		return 0
	}
	return since + int64(patience)
}

// tickPeer does what is due for a peer.
func (c *Core) tickPeer(p *peer) {
	at := c.deadline(p)
	switch {
	case at == 0 || c.now < at:
	case p.self:
		p.sentAt = c.now
		p.out.Shrink()
	case c.now >= c.limit(p):
		c.giveUp(p)
	case p.state == peerConnecting:
		p.redialAt = 0
		c.ports.Connect(p.id)
	default:
		// The heartbeat is an acknowledgement, and tells of credit that went
		// back since the last frame.
		p.arrivals.Hurry(c.now)
		p.sentAt = c.now
		p.out.Shrink()
		c.touch(p)
	}
}

// giveUp ends a peer whose time is up.
func (c *Core) giveUp(p *peer) {
	switch p.state {
	case peerDenied:
		c.endDenial(p)
	case peerConnecting:
		c.peerDied(p, fmt.Errorf("%w, no other within %v", link.ErrBroken, c.patience(p)))
	default:
		c.peerDied(p, fmt.Errorf("nothing heard for %v", c.cfg.DeadAfter))
	}
}

// tickOwed sends the acknowledgements that no frame has carried in time.
func (c *Core) tickOwed(due func(int64)) {
	keep := c.owed[:0]
	for _, id := range c.owed {
		p := &c.peers[id]
		switch {
		case p.arrivals.At() == 0 || p.state != peerGreeting && p.state != peerReady:
			p.owed = false
		case c.now >= p.arrivals.At():
			p.owed = false
			c.touch(p)
		default:
			due(p.arrivals.At())
			keep = append(keep, id)
		}
	}
	c.owed = keep
}
