package ioatmodel

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
		ch.hung, ch.stuck, ch.zombie = true, true, *d
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

// Revive has channels that hang forever carry out the copy in which they hang, with wrong bytes,
// if the device may still access the memory.
func (m *Model) Revive() {
	for _, ch := range m.chans {
		ch.mu.Lock()
		if d := ch.zombie; d.size != 0 {
			ch.spoil(&d, 0)
		}
		ch.mu.Unlock()
	}
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
