package core

import "time"

// patience is how long a peer may be without a connection.
func (c *Core) patience(p *peer) time.Duration {
	if p.known || c.fail != nil { // it is to tell others, and they cannot wait until it starts
		return c.cfg.DeadAfter
	}
	return c.cfg.StartWithin
}
