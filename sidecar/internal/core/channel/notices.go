package channel

// Notices is whether the sender of a ring has to notify its writes (P§5.7, look.go).
type Notices struct {
	off  bool   // it has not to
	says bool   // it has not been told of the last change
	from uint64 // frames taken before the last sleep
}

// Off reports whether writes need no notification.
func (n *Notices) Off() bool { return n.off }

// Unsaid reports whether the sender has not been told of the last change.
func (n *Notices) Unsaid() bool { return n.says }

// Said notes that it has been told.
func (n *Notices) Said() { n.says = false }

// Awake turns notifications off if many frames were taken since the last sleep. It reports whether it
// did.
func (n *Notices) Awake(taken, many uint64) bool {
	if n.off || taken-n.from < many {
		return false
	}
	n.off, n.says = true, true
	return true
}

// Sleep turns them on again. It reports whether the sender has to be told.
func (n *Notices) Sleep(taken uint64) bool {
	n.from = taken
	if !n.off {
		return false
	}
	n.off, n.says = false, true
	return true
}
