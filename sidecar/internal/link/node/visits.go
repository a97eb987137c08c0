package node

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence/sockets"
)

// visits are the connections that each Poll reads: those that carried something lately. The
// peers of the others find the flag set by which they see that this side sleeps, so that they
// send a wake-up, and all of them share one look at the sockets every silence.LookInterval.
// A peer of any version does so, because an engine sleeps with the same flag set.
type visits struct {
	list  []*conn
	turn  int // index in list of the connection in turn
	polls int // since the last poll of the sockets
	clock sockets.Clock
}

// visit is what a connection has of visits.
type visit struct {
	in   bool // it is in the list
	used bool // something was sent or received since the last retire
}

// use makes each Poll read the connection until it is silent.
func (c *conn) use() {
	c.visit.used = true
	if !c.visit.in {
		c.visit.in = true
		c.in.sleep.Store(0)
		c.l.visits.list = append(c.l.visits.list, c)
	}
}

// retire ends the use of the connections that carried nothing since its last call.
func (l *Link) retire() {
	l.visits.list = slices.DeleteFunc(l.visits.list, func(c *conn) bool {
		c.visit.in = !c.becomesSilent()
		c.visit.used = false
		return !c.visit.in
	})
}

// becomesSilent reports whether an event of a socket will tell of all that this side has to
// do for the peer. As before a sleep, it looks once more after it has set the flag.
func (c *conn) becomesSilent() bool {
	begun := c.left > 0 || len(c.dst) > 0 || len(c.rest) > 0
	if c.visit.used || begun || c.needs > 0 || len(c.unsent) > 0 || c.watched || c.err != nil {
		return false
	}
	publish(c.in.sleep, 1)
	if c.hasWork() {
		c.in.sleep.Store(0)
		return false
	}
	return true
}

// lookAtSilent reports whether it is time to look at the sockets of silent connections.
func (l *Link) lookAtSilent() bool {
	return len(l.visits.list) < len(l.list) && l.visits.clock.MayLook()
}
