// Package silence tells a link when it has to look at connections that carry nothing. A link
// reads each connection in each Poll until it is silent. From then on the connection costs a
// share of one call of epoll_wait every LookInterval.
//
// What a silent connection brings first may wait for LookInterval: that is at most a fiftieth
// of the silence.
package silence

import "time"

// LookInterval is the time between two looks at silent connections.
const LookInterval = 20 * time.Microsecond

const (
	silentPolls = 1000
	silentTime  = time.Millisecond
	lookPolls   = 8 // polls between two readings of the clock, which cost as much as some polls
)

// begin is the origin of times. Reading the monotonic clock alone takes half as long as
// time.Now, which reads two.
var begin = time.Now()

// Clock tells when a Poll looks at silent connections, and when connections become silent.
// Its owner is the goroutine that polls.
type Clock struct {
	polls int           // since IsOver last read the clock
	since time.Duration // start of the time in which a connection has to carry something
	look  int           // polls until MayLook reads the clock again
	next  time.Duration // time of the next look
}

// IsOver reports whether connections that carried nothing since it was last true are silent.
// It is called once in each Poll.
func (c *Clock) IsOver() bool {
	c.look--
	c.polls++
	return c.polls >= silentPolls && c.over()
}

func (c *Clock) over() bool {
	c.polls = 0
	now := time.Since(begin)
	if now-c.since < silentTime {
		return false
	}
	c.since = now
	return true
}

// MayLook reports whether it is time to look at the silent connections.
func (c *Clock) MayLook() bool { return c.look <= 0 && c.due() }

func (c *Clock) due() bool {
	c.look = lookPolls
	now := time.Since(begin)
	if now < c.next {
		return false
	}
	c.next = now + LookInterval
	return true
}

// longBytes is the number of bytes that a poll moves in about the time between two looks.
const longBytes = 16 << 10

// Moved notes the bytes of a poll. After a long one, MayLook reads the clock at once.
func (c *Clock) Moved(bytes uint64) {
	if bytes >= longBytes {
		c.look = 0
	}
}

// LookNow makes the next call of MayLook return true.
func (c *Clock) LookNow() { c.look, c.next = 0, 0 }
