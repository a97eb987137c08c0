package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Tick does what time alone brings about: late acknowledgements, heartbeats,
// and the end of peers that have been silent or unreachable for too long. It
// returns when it wants to be called again; 0: no timer runs.
func (c *Core) Tick(now int64) (next int64) {
	c.now = now
	c.forgiveOwnAbsence()
	due := func(t int64) {
		if next == 0 || t < next {
			next = t
		}
	}
	c.tickLeft(due)
	for i := range c.peers {
		p := &c.peers[i]
		if p.self {
			continue
		}
		switch p.state {
		case peerConnecting:
			c.tickConnecting(p, due)
		case peerGreeting, peerReady:
			c.tickUp(p, due)
		case peerDenied:
			limit := p.downAt + int64(c.cfg.DeadAfter)
			if now >= limit {
				c.endDenial(p)
				continue
			}
			due(limit)
		}
	}
	c.tickDue = now + int64(c.cfg.Heartbeat)
	if next == 0 {
		return 0
	}
	// Never later, or a stop until the next timer could not be told from sleep.
	return min(next, c.tickDue)
}

// forgiveOwnAbsence does not hold against peers the time in which this sidecar
// itself did not run: it was stopped, or had no processor, and has heard nobody.
func (c *Core) forgiveOwnAbsence() {
	late := c.now - c.tickDue
	if c.tickDue == 0 || late < int64(c.cfg.Heartbeat) {
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

func (c *Core) tickConnecting(p *peer, due func(int64)) {
	since, patience := p.downAt, c.cfg.DeadAfter
	switch {
	case p.known:
	case c.fail == nil:
		patience = c.cfg.StartWithin
	default: // it is to tell others, and they cannot wait until it starts
		since = max(since, c.fail.At)
	}
	limit := since + int64(patience)
	if c.now >= limit {
		c.peerDied(p, fmt.Errorf("%w, no other within %v", link.ErrBroken, patience))
		return
	}
	due(limit)
	switch {
	case p.redialAt == 0:
	case c.now >= p.redialAt:
		p.redialAt = 0
		c.ports.Connect(p.id)
	default:
		due(p.redialAt)
	}
}

func (c *Core) tickUp(p *peer, due func(int64)) {
	since := p.heardAt
	if p.downAt != 0 { // not yet on this connection
		since = p.downAt
	}
	limit := since + int64(c.cfg.DeadAfter)
	if c.now >= limit {
		c.peerDied(p, fmt.Errorf("nothing heard for %v", c.cfg.DeadAfter))
		return
	}
	due(limit)
	if p.ackAt != 0 {
		if c.now >= p.ackAt {
			c.touch(p)
		} else {
			due(p.ackAt)
		}
	}
	if p.grantSent != p.grant && p.ackAt == 0 {
		p.ackAt = c.now + int64(c.cfg.Heartbeat)
		due(p.ackAt)
	}
	beat := p.sentAt + int64(c.cfg.Heartbeat)
	if c.now >= beat {
		p.ackAt = c.now
		c.touch(p)
		beat = c.now + int64(c.cfg.Heartbeat)
	}
	due(beat)
}
