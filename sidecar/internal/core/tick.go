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
			patience := c.cfg.DeadAfter
			if !p.known {
				patience = c.cfg.StartWithin
			}
			limit := p.downAt + int64(patience)
			if now >= limit {
				c.peerDied(p, fmt.Errorf("%w, no other within %v", link.ErrBroken, patience))
				continue
			}
			due(limit)
		case peerGreeting, peerReady:
			c.tickUp(p, due)
		}
	}
	return next
}

func (c *Core) tickUp(p *peer, due func(int64)) {
	limit := p.heardAt + int64(c.cfg.DeadAfter)
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
