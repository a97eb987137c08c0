package dsa

import (
	"fmt"
	"time"
)

// reap handles the completions of descriptors in flight, in any order.
func (c *Channel) reap() {
	select {
	case <-c.drained:
		c.reapFlying()
		c.leave() // what has no completion now gets none
		return
	default:
	}
	c.reapFlying()
}

func (c *Channel) reapFlying() {
	for s := c.flying; s != 0; {
		i := s.first()
		s.remove(i)
		status, result := c.records.load(i)
		if status == 0 {
			continue
		}
		c.flying.remove(i)
		c.full, c.refusals, c.idle, c.since = false, 0, 0, time.Time{}
		c.completed(i, status, result)
	}
}

// completed handles one completion.
func (c *Channel) completed(i int, status, result uint8) {
	s := &c.slots[i]
	switch status & statusMask {
	case statusSuccess:
		c.errors = 0
		c.stats.DeviceBytes += uint64(s.n)
		c.release(i)
	case statusPageFault:
		c.stats.Faults++
		c.fault(i, status&statusWrite != 0, result == resultBackward)
	default:
		c.stats.Errors++
		c.toProcessor(i)
		if c.errors++; c.errors == errorsMax {
			c.end(fmt.Errorf("%d descriptors in a row failed, the last with status %#02x (%s)", errorsMax, status, statusName(status)))
		}
	}
}

// fault resumes a piece behind the bytes that are copied. The device copies from the end, and
// says so, if the ranges overlap in that direction.
func (c *Channel) fault(i int, write, backward bool) {
	s := &c.slots[i]
	n := int(c.records.completed(i))
	if n > s.n { // the record is wrong: what was copied is not known
		c.toProcessor(i)
		return
	}
	c.stats.DeviceBytes += uint64(n)
	s.n -= n
	if !backward {
		s.off += n
	}
	if s.n == 0 {
		c.release(i)
		return
	}
	if n > 0 {
		s.faults = 0
	}
	s.faults++
	s.faultsInAll++
	if c.cause != nil || s.faults == faultsMax || s.faultsInAll > s.faultsBudget {
		c.toProcessor(i)
		return
	}
	s.write = write
	c.again.add(i)
}

// touch makes the rest of a piece resident, of which a page was not.
func (c *Channel) touch(s *slot) error {
	t := c.at(s.copy)
	known, mem := &c.readable, t.src
	if s.write {
		known, mem = &c.writable, t.dst
	}
	mem = mem[s.off : s.off+s.n]
	known.forget(mem)
	return known.add(mem)
}

// toProcessor leaves the rest of a piece to the processor.
func (c *Channel) toProcessor(i int) {
	c.manual.add(i)
	c.stats.Fallbacks++
}

// release ends a piece.
func (c *Channel) release(i int) {
	c.at(c.slots[i].copy).pieces--
	c.slots[i] = slot{}
	c.free.add(i)
	c.advance()
}

// watch looks for a device that no longer completes descriptors.
func (c *Channel) watch() {
	if c.flying == 0 || c.cause != nil {
		c.idle, c.since = 0, time.Time{}
		return
	}
	if c.idle++; c.idle%watchEvery != 0 {
		return
	}
	now := time.Now()
	if c.since.IsZero() {
		c.since = now
	}
	switch waited := now.Sub(c.since); {
	case waited >= c.late:
		c.end(fmt.Errorf("%d descriptors have not completed for %v", c.flying.len(), c.late))
	case waited >= c.suspect && !c.unreliable && c.queue.Failed():
		c.end(fmt.Errorf("the device reports an error, and has completed no descriptor for %v", c.suspect))
	}
}
