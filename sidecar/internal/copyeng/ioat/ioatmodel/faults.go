package ioatmodel

import "time"

// zombie is the time after which a channel that hangs forever carries its copy out.
const zombie = 5 * time.Millisecond

// disturb makes a fault happen to a descriptor. It returns true if the descriptor does not end.
func (ch *channel) disturb(f *Fault, d *descriptor) bool {
	switch f.Kind {
	case Halt:
		ch.fail(f.Bit)
	case HaltLater:
		ch.spoil(d, d.size/2)
		ch.fail(f.Bit)
	case Hang:
		ch.hung = true
	case HangForever:
		ch.hung, ch.stuck = true, true
		late := *d
		ch.m.wait.Go(func() { // Close waits for it
			t := time.NewTimer(zombie)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ch.stopped:
			}
			ch.mu.Lock()
			defer ch.mu.Unlock()
			ch.spoil(&late, 0)
		})
	case Suspend:
		ch.state = suspended
	case Vanish:
		ch.m.gone.Store(true)
		ch.hung, ch.stuck = true, true
	default:
		return false
	}
	return true
}

// spoil copies right bytes at the beginning, and wrong bytes behind them.
func (ch *channel) spoil(d *descriptor, right uint32) {
	ch.m.mem.mu.RLock()
	defer ch.m.mem.mu.RUnlock()
	dst, src := ch.m.mem.at(d.dst, uint64(d.size)), ch.m.mem.at(d.src, uint64(d.size))
	if dst == nil || src == nil || !ch.m.space.master.Load() {
		return
	}
	copy(dst, src[:right])
	for i := range dst[right:] {
		dst[int(right)+i] = ^src[int(right)+i]
	}
}
