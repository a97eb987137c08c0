// Package silence decides what a poll need not visit any more: connections, rings or ranks
// that have brought nothing for Turns turns and for Time, or for SlowTurns and for SlowTime. All
// that are silent share one look every LookInterval (docs/decisions/034-silent-ranks-and-peers.md).
//
// What a silent one brings first may wait for LookInterval: that is at most a fiftieth of the
// silence.
package silence

import "time"

// LookInterval is the time between two looks at what is silent.
const LookInterval = 20 * time.Microsecond

// Limits of a silence. With Turns alone, an engine without work would make LookInterval a fifth of
// the silence: it makes them in 100 us.
const (
	Turns = 1000
	Time  = time.Millisecond
)

// Limits of a silence for an engine that sleeps between messages. With Turns it would last longer
// than the time between two heartbeats of a peer, and each heartbeat ends the silence of its peer.
const (
	SlowTurns = 16
	SlowTime  = 20 * time.Millisecond
)

// Clock tells when a turn looks at all that are silent, and when others become silent. Times
// are nanoseconds of the clock of its owner, who supplies them.
type Clock struct {
	turns int   // since IsOver was last true
	since int64 // time at which it was
	next  int64 // time of the next look
}

// IsOver counts turns, and reports whether whatever brought nothing since it was last true is
// silent.
func (c *Clock) IsOver(turns int, now int64) bool {
	c.turns += turns
	took := now - c.since
	if (c.turns < Turns || took < int64(Time)) && (c.turns < SlowTurns || took < int64(SlowTime)) {
		return false
	}
	c.turns, c.since = 0, now
	return true
}

// MayLook reports whether it is time to look at all that are silent. The next look is
// LookInterval later.
func (c *Clock) MayLook(now int64) bool {
	if now < c.next {
		return false
	}
	c.next = now + int64(LookInterval)
	return true
}

// LookNow makes the next call of MayLook return true.
func (c *Clock) LookNow() { c.next = 0 }
