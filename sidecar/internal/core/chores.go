package core

// Work that others can make long is not done in one step: the end of a rank with tens of thousands
// of requests, the reduction of half a gigabyte. Each turn does a part of it, so that neither other
// ranks nor the heartbeat wait for the rest.

// advanceItems bounds the requests, messages or waiters that one Advance ends; it copies
// collective.AdvanceBytes at most. Each takes some 100 us on the machines that this was
// measured on (docs/BENCHMARKS.md, fairness).
const advanceItems = 1024

// Pending reports whether there is something to do at once. The engine must not sleep then.
func (c *Core) Pending() bool {
	if len(c.endings) > 0 || c.onesided.Pending() || c.parting.sweeping || c.collectives.Pending() || c.channel.Accuses() || c.p2p.Waits() || c.p2p.Trims() {
		return true
	}
	if c.wanted > c.gen && c.follows() {
		return true
	}
	return c.channel.Pending()
}

// Advance does a bounded part of the work that takes longer than an event. It returns how much it
// has done, or 0 if there is none.
func (c *Core) Advance(now int64) int {
	if c.wanted > c.gen { // never where ranks attach once
		c.at(now)
		c.follow()
	}
	if len(c.endings) == 0 && !c.onesided.Pending() && !c.parting.sweeping && !c.collectives.Pending() && !c.channel.Accuses() && !c.p2p.Waits() && !c.p2p.Trims() {
		return 0
	}
	c.at(now)
	c.settle()
	c.settleAccounts()
	c.p2p.Register()
	c.p2p.Trim()
	c.onesided.Grant()
	budget := c.endSessions(advanceItems)
	budget = c.onesided.FailWaiters(budget)
	budget = c.sweep(budget)
	return 1 + advanceItems - budget + c.collectives.Advance()
}
