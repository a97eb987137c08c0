// Package sockets is package silence for links with sockets, whose Poll has no time: it reads
// the clock by itself, and asks epoll about all silent connections at once.
package sockets

import (
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// lookPolls is the number of polls between two readings of the clock, which cost as much as some
// polls.
const lookPolls = 8

// begin is the origin of times. Reading the monotonic clock alone takes half as long as
// time.Now, which reads two.
var begin = time.Now()

func now() int64 { return int64(time.Since(begin)) }

// Clock is a silence.Clock that reads the time seldom. Its owner is the goroutine that polls.
type Clock struct {
	clock silence.Clock
	polls int // since IsOver last read the time
	look  int // polls until MayLook reads the time again
}

// IsOver reports whether connections that carried nothing since it was last true are silent.
// It is called once in each Poll.
func (c *Clock) IsOver() bool {
	c.look--
	c.polls++
	return c.polls >= silence.SlowTurns && c.over()
}

func (c *Clock) over() bool {
	n := c.polls
	c.polls = 0
	return c.clock.IsOver(n, now())
}

// MayLook reports whether it is time to look at the silent connections.
func (c *Clock) MayLook() bool { return c.look <= 0 && c.due() }

func (c *Clock) due() bool {
	c.look = lookPolls
	return c.clock.MayLook(now())
}

// longBytes is the number of bytes that a poll moves in about the time between two looks.
const longBytes = 16 << 10

// Moved notes the bytes of a poll. After a long one, MayLook reads the time at once.
func (c *Clock) Moved(bytes uint64) {
	if bytes >= longBytes {
		c.look = 0
	}
}

// LookNow makes the next call of MayLook return true.
func (c *Clock) LookNow() {
	c.look = 0
	c.clock.LookNow()
}
