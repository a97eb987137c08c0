package dsa

import (
	"fmt"
	"runtime/debug"
)

// finishByProcessor copies pieces that the device did not copy.
func (c *Channel) finishByProcessor() {
	for c.manual != 0 && c.budget > 0 {
		i := c.manual.first()
		s := &c.slots[i]
		t := c.at(s.copy)
		n := min(s.n, c.budget)
		c.copy(t, s.off, n)
		s.off += n
		s.n -= n
		if s.n == 0 || t.err != nil {
			c.manual.remove(i)
			c.release(i)
		}
	}
}

// copyRest copies what is left of a copy, and reports whether that was all.
func (c *Channel) copyRest(t *transfer) bool {
	n := max(0, min(t.end-t.next, c.budget))
	if overlap(t.dst, t.src) {
		n = t.end - t.next // in parts, a part would overwrite the source of the next
	}
	c.copy(t, t.next, n)
	if t.next += n; t.next < t.end && t.err == nil {
		return false
	}
	t.next = len(t.src)
	return true
}

// copy copies n bytes at off by the processor, unless the copy has failed.
func (c *Channel) copy(t *transfer, off, n int) {
	c.budget -= n
	if n <= 0 || t.err != nil {
		return
	}
	if t.err = guarded(t.dst[off:off+n], t.src[off:off+n]); t.err == nil {
		c.stats.ProcessorBytes += uint64(n)
	}
}

// guarded copies, and returns an error where the access raises SIGBUS or SIGSEGV. The device
// reports the same as a fault.
func guarded(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("%w: address %#x", ErrMemory, fault.Addr())
		}
	}()
	copy(dst, src)
	return nil
}
