package channel

// Notices says whether the sender of a ring has to tell of its writes: one that is awake
// looks at its rings anyway (P§5.7).
type Notices struct {
	off  bool   // it need not
	says bool   // it is still to hear of a change
	from uint64 // frames taken before the last sleep
}

// Off reports that the sender need not tell of its writes.
func (n *Notices) Off() bool { return n.off }

// Unsaid reports that the sender is still to hear of a change.
func (n *Notices) Unsaid() bool { return n.says }

// Said notes that it has been told.
func (n *Notices) Said() { n.says = false }

// Awake is told how many frames were taken, and turns notices off when there were many since
// the last sleep. It reports whether it did.
func (n *Notices) Awake(taken, many uint64) bool {
	if n.off || taken-n.from < many {
		return false
	}
	n.off, n.says = true, true
	return true
}

// Sleep turns them on again, and reports whether that is to be said.
func (n *Notices) Sleep(taken uint64) bool {
	n.from = taken
	if !n.off {
		return false
	}
	n.off, n.says = false, true
	return true
}
