package channel

import "github.com/outrigger-hpc/outrigger/api/wire"

// Credit is how many bytes of eager messages each side lets the other send: both ends
// start from the same configuration, and a side tells with each frame what it grants, as a
// sum that only grows (P§3.4). All of it is in units of wire.CreditUnit.
type Credit struct {
	granted uint32 // by the peer, cumulative
	used    uint32 // of it
	grant   uint32 // to the peer, cumulative
	told    uint32 // of it
	taken   uint32 // of it, by messages of the peer, cumulative
}

// Units are bytes in units of credit.
func Units(bytes uint64) uint32 { return uint32(bytes / wire.CreditUnit) }

// Init grants both sides a window.
func (x *Credit) Init(window uint64) {
	x.Renew(window)
	x.granted = x.grant
}

// Renew grants the peer a window, whatever it has had.
func (x *Credit) Renew(window uint64) { x.grant, x.told = Units(window), Units(window) }

// Granted is what the peer grants, Used what was used of it, and Grant what the peer is granted.
func (x *Credit) Granted() uint32 { return x.granted }

// Used is explained at Granted.
func (x *Credit) Used() uint32 { return x.used }

// Grant is explained at Granted.
func (x *Credit) Grant() uint32 { return x.grant }

// Grows reports that a peer grants more than it has told before. It compares serial numbers:
// an old frame that comes again carries an old value.
func (x *Credit) Grows(granted uint32) bool {
	d := granted - x.granted
	return d != 0 && d < 1<<31
}

// Learn takes what the peer grants; false: it is more than a window.
func (x *Credit) Learn(granted uint32, window uint64) bool {
	if uint64(granted-x.used)*wire.CreditUnit > window {
		return false
	}
	x.granted = granted
	return true
}

// Take uses credit if there is so much.
func (x *Credit) Take(units uint32) bool {
	if x.granted-x.used < units {
		return false
	}
	x.used += units
	return true
}

// Charge accounts a message of the peer; false: it was not granted so much.
func (x *Credit) Charge(units uint32) bool {
	x.taken += units
	return int32(x.grant-x.taken) >= 0
}

// Return grants the peer again what a message has taken.
func (x *Credit) Return(units uint32) { x.grant += units }

// Own is for the side that is its own peer, and learns at once what it grants.
func (x *Credit) Own() { x.granted = x.grant }

// Unsaid is how many bytes of credit the peer has not been told of.
func (x *Credit) Unsaid() uint64 { return uint64(x.grant-x.told) * wire.CreditUnit }

// Said notes that a frame tells the peer of all its credit.
func (x *Credit) Said() { x.told = x.grant }
