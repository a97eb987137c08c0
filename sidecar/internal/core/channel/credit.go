package channel

import "github.com/outrigger-hpc/outrigger/api/wire"

// Credit counts the bytes of eager messages that each side lets the other send. Both sides start
// from the same window, and each frame carries what its sender grants, as a sum that only grows
// (P§3.4). All values are in units of wire.CreditUnit.
type Credit struct {
	granted uint32 // credit granted by the peer, cumulative
	used    uint32 // the part of granted that was used, or given up
	grant   uint32 // credit granted to the peer, cumulative
	told    uint32 // the part of grant that was reported to the peer
	taken   uint32 // the part of grant that messages of the peer have used, or that it has given up, cumulative
	width   uint32 // the window of the peer: what it may use before something of it is returned

	// State of the peer's window (windows.go).
	met    bool   // the peer has greeted
	yields bool   // the peer answers Yield
	wider  bool   // the window was widened, and no frame has told the peer yet
	asked  uint32 // credit that the peer was asked for, and has not answered; 0: none

	departed bool // all ranks of the peer have left

	seen   uint32 // taken when the window was last looked at
	seenAt int64  // time since which taken was seen
}

// Units converts bytes to units of credit.
func Units(bytes uint64) uint32 { return uint32(bytes / wire.CreditUnit) }

// Init grants both sides a window.
func (x *Credit) Init(window uint64) {
	x.Renew(window)
	x.granted = x.grant
}

// Renew grants the peer a new window.
func (x *Credit) Renew(window uint64) {
	x.grant, x.told, x.width, x.wider = Units(window), Units(window), Units(window), false
}

// Granted returns the sum that the peer grants.
func (x *Credit) Granted() uint32 { return x.granted }

// Used returns the part of Granted that was used.
func (x *Credit) Used() uint32 { return x.used }

// Grant returns the sum that the peer is granted.
func (x *Credit) Grant() uint32 { return x.grant }

// Grows reports whether a peer grants more than before. The values are serial numbers: a frame that
// is sent again carries an old one.
func (x *Credit) Grows(granted uint32) bool {
	d := granted - x.granted
	return d != 0 && d < 1<<31
}

// Returned returns the part of Grant that was granted in place of used credit.
func (x *Credit) Returned() uint32 { return x.grant - x.width }

// Learn sets the sum that the peer grants. It reports false if that is more than a window, the
// widest one that the peer may grant.
func (x *Credit) Learn(granted uint32, window uint64) bool {
	if uint64(granted-x.used)*wire.CreditUnit > window {
		return false
	}
	x.granted = granted
	return true
}

// Take uses credit, or reports false if there is not enough.
func (x *Credit) Take(units uint32) bool {
	if x.granted-x.used < units {
		return false
	}
	x.used += units
	return true
}

// Charge counts a message of the peer. It reports false if the peer was not granted that much.
func (x *Credit) Charge(units uint32) bool {
	x.taken += units
	return int32(x.grant-x.taken) >= 0
}

// Return grants the peer the units that a message has used.
func (x *Credit) Return(units uint32) { x.grant += units }

// Widen grants the peer units in addition to its window.
func (x *Credit) Widen(units uint32) {
	x.grant, x.width, x.wider = x.grant+units, x.width+units, true
}

// Yield gives up credit that the peer has granted, at most the given units, and returns how much.
func (x *Credit) Yield(most uint32) uint32 {
	units := min(most, x.granted-x.used)
	x.used += units
	return units
}

// Narrow counts credit that the peer has given up. It reports false if the peer did not have that
// much.
func (x *Credit) Narrow(units uint32) bool {
	x.width -= units
	return x.Charge(units)
}

// Lacks reports whether the peer has less credit than the given units. In the order of its frames
// the peer has used just what was taken, and knows of no more than told.
func (x *Credit) Lacks(units uint32) bool { return x.told-x.taken < units }

// Own sets Granted to Grant, for the stream of a sidecar to itself.
func (x *Credit) Own() {
	x.granted = x.grant
	x.Said()
}

// Reports reports whether a quarter of the window was returned that no frame has reported to the
// peer yet.
func (x *Credit) Reports() bool { return uint64(x.grant-x.told)*4 >= uint64(x.width) }

// Said notes that a frame has carried the latest grant.
func (x *Credit) Said() { x.told, x.wider = x.grant, false }
