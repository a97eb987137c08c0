package channel

// Moderation decides whether the sender of a ring has to notify its writes (P§5.7, look.go).
type Moderation struct {
	off     bool   // writes need no notification
	changed bool   // the last change was not reported to the sender
	from    uint64 // frames taken before the last sleep
}

// Off reports whether writes need no notification.
func (n *Moderation) Off() bool { return n.off }

// Changed reports whether a change has to be reported to the sender.
func (n *Moderation) Changed() bool { return n.changed }

// Announced notes that the change was reported to the sender.
func (n *Moderation) Announced() { n.changed = false }

// TurnOff turns notifications off if many frames were taken since the last sleep, and reports
// whether it did.
func (n *Moderation) TurnOff(taken, many uint64) bool {
	if n.off || taken-n.from < many {
		return false
	}
	n.off, n.changed = true, true
	return true
}

// TurnOn turns notifications on before a sleep, and reports whether that has to be reported to
// the sender.
func (n *Moderation) TurnOn(taken uint64) bool {
	n.from = taken
	if !n.off {
		return false
	}
	n.off, n.changed = false, true
	return true
}
