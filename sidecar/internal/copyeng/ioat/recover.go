package ioat

import (
	"errors"
	"fmt"
	"time"
)

// progress finds out which descriptors have ended.
func (c *Channel) progress() {
	if c.done == c.posted {
		return
	}
	if w := c.ring.word.Load(); w != c.seen {
		c.seen = w
		c.take(w)
		return
	}
	if c.empty++; c.empty%emptyPolls == 0 {
		c.watch(c.opt.now())
	}
}

// take uses a status of the channel, from the completion word or the register.
func (c *Channel) take(status uint64) {
	n, ok := c.ring.ended(status, c.done, c.posted)
	if n > c.done {
		c.done = n
		c.empty, c.since, c.rung, c.failed = 0, time.Time{}, false, 0
	}
	switch {
	case status&statusMask == statusHalted:
		c.halted()
	case !ok:
		c.recover(fmt.Errorf("ioat: the channel reports the end of a descriptor that does not exist: %#x", status))
	}
}

// watch looks after a channel that makes no progress.
func (c *Channel) watch(now time.Time) {
	if c.since.IsZero() {
		c.since = now
		return
	}
	idle := now.Sub(c.since)
	if idle < c.opt.Patience {
		return
	}
	// Reading the register pushes earlier writes of the device, data included, to memory.
	status := c.dev.Read64(c.base + regStatus)
	if status == ^uint64(0) {
		c.die(errors.New("ioat: the device has vanished"))
		return
	}
	if w := c.ring.word.Load(); w != c.seen {
		c.seen = w // it was written after the last poll, and is not late
		c.take(w)
		return
	}
	if n, ok := c.ring.ended(status, c.done, c.posted); ok && n > c.done {
		c.stats.Late++
		c.take(status)
		return
	}
	switch state := status & statusMask; {
	case state == statusHalted:
		c.halted()
	case state != statusActive && state != statusIdle && state != statusArmed:
		c.recover(fmt.Errorf("ioat: the channel has status %d", state))
	case idle >= c.opt.Hang && state == statusActive:
		c.recover(errors.New("ioat: the channel is active and makes no progress"))
	case idle >= c.opt.Hang:
		c.recover(errors.New("ioat: the channel does not start"))
	case state != statusActive && !c.rung:
		c.rung = true
		c.stats.Rerung++
		c.doorbell()
	}
}

// halted goes on after an error. The processor makes the copy that has failed.
func (c *Channel) halted() {
	c.stats.Halts++
	if n, ok := c.ring.ended(c.dev.Read64(c.base+regStatus), c.done, c.posted); ok {
		c.done = n // an error can keep the channel from writing the completion word
	}
	bits := c.dev.Read32(c.base + regError)
	if !c.recoverable(fmt.Errorf("ioat: the channel has halted, with errors %#x", bits)) {
		return
	}
	for n := c.tail; n < c.head && c.done < c.posted; n++ {
		j := c.job(n)
		if j.cpu || j.last <= c.done {
			continue
		}
		c.byProcessor(j)
		c.done = j.last
		if n == c.next { // a part of it had no descriptors yet
			c.next++
		}
		break
	}
	c.resume()
}

// recover resets a channel that has not failed in a copy. Descriptors that have not ended are
// executed again.
func (c *Channel) recover(cause error) {
	if c.recoverable(cause) {
		c.resume()
	}
}

// recoverable resets the channel, or declares it dead.
func (c *Channel) recoverable(cause error) bool {
	if c.failed == recoveriesMax {
		c.die(fmt.Errorf("%w; it has ended no copy after %d resets", cause, recoveriesMax))
		return false
	}
	c.failed++
	if err := c.reset(); err != nil {
		c.die(fmt.Errorf("%w; %w", cause, err))
		return false
	}
	return true
}

func (c *Channel) resume() {
	c.stats.Recoveries++
	c.empty, c.since, c.rung = 0, time.Time{}, false
	c.start()
	if c.posted != c.first {
		c.doorbell()
	}
}

// die ends the use of the device. The processor makes all copies that have not ended.
func (c *Channel) die(cause error) {
	c.dead = cause
	if err := c.isolate(); err != nil {
		// Closing the device is slow, and certain to end its access to memory.
		c.dead = errors.Join(cause, err, c.shutDevice())
	}
	c.posted = c.done
	for n := c.tail; n < c.head; n++ {
		j := c.job(n)
		if n < c.next && (j.cpu || j.last <= c.done) {
			continue // it has ended, and so have all before it
		}
		c.next = min(c.next, n)
		j.cpu = true
	}
}
