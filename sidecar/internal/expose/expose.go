// Package expose has the rules for accesses to a window's memory without its sidecar: which
// peers have its key, when the key may be deregistered (Exposure, at the side that has the
// memory), and which accesses are allowed (View, at a side that accesses it), without the
// requests, frames and links that carry them. P§5.6 is a section of api/wire/PROTOCOL.md.
//
//	origin                            target
//	first access, as a frame -------> carried out
//	View.Want: Expose --------------> Exposure.Ask: registered once for all peers
//	View.Answered <------------------ Exposed: key, address, length
//	remote writes and reads ========> (no action)
//	                                  the window is freed: Exposure.Close
//	View.Conceal <------------------- Conceal, to each holder
//	when its last operation has ended
//	Concealed ----------------------> Exposure.Leave: the last one ends the
//	                                  registration, and the memory is free
package expose

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Holder is a peer that was told of a window, and its number for the window.
type Holder struct {
	Peer link.Peer
	View uint64
}

// Exposure is a window's memory at the side that has it.
type Exposure struct {
	key     link.Key
	keyed   bool
	asked   bool
	closing bool
	placing int // frames whose payload is being read into the window
	holders []Holder
}

// Ask adds a peer that requests access to the window. The first request makes the caller
// register the memory, and report success by Registered. All requesting peers are told of
// the window's end, with a key or without.
func (x *Exposure) Ask(h Holder) (register bool, err error) {
	if slices.ContainsFunc(x.holders, func(o Holder) bool { return o.Peer == h.Peer }) {
		return false, fmt.Errorf("%w: it asks twice for one window", link.ErrProtocol)
	}
	x.holders = append(x.holders, h)
	register, x.asked = !x.asked, true
	return register, nil
}

// Registered sets the key that peers are told from now on.
func (x *Exposure) Registered(k link.Key) { x.key, x.keyed = k, true }

// Key returns the key of the registration, which ends with the exposure.
func (x *Exposure) Key() (link.Key, bool) { return x.key, x.keyed }

// Close begins the end of the exposure, and returns the holders to be told.
func (x *Exposure) Close() []Holder {
	x.closing = true
	return x.holders
}

// Leave removes a peer that accesses the window no more, by its message or because it is
// gone. It returns false if the peer was no holder.
func (x *Exposure) Leave(p link.Peer) bool {
	i := slices.IndexFunc(x.holders, func(h Holder) bool { return h.Peer == p })
	if i < 0 {
		return false
	}
	x.holders = slices.Delete(x.holders, i, i+1)
	return true
}

// Forget removes all holders that are gone.
func (x *Exposure) Forget(gone func(Holder) bool) { x.holders = slices.DeleteFunc(x.holders, gone) }

// Placing counts a frame whose payload a link reads into the window.
func (x *Exposure) Placing() { x.placing++ }

// Placed counts the end of such a read.
func (x *Exposure) Placed() { x.placing = max(x.placing-1, 0) } // 0: the exposure was abandoned

// Abandon removes all holders and reads into the window: the end of the registration ends
// their operations.
func (x *Exposure) Abandon() { x.holders, x.placing = nil, 0 }

// Over reports whether the window has ended and no peer or link writes to it any more.
func (x *Exposure) Over() bool { return x.closing && len(x.holders) == 0 && x.placing == 0 }

// Holders returns how many peers may access the window.
func (x *Exposure) Holders() int { return len(x.holders) }

// Closing reports whether the window has ended.
func (x *Exposure) Closing() bool { return x.closing }

// View is a window of another sidecar as ranks of this sidecar access it.
type View struct {
	key     link.Key
	length  uint64
	state   viewState
	under   int      // operations in progress
	last    []uint64 // by local rank: sequence number of the frame of its last access by frame; 0: all are flushed
	closing bool
}

type viewState uint8

const (
	viewAsked  viewState = iota
	viewOpen             // may be accessed remotely
	viewFrames           // may only be accessed by frames
)

// Answered sets the target's answer. A key of 0 means that the window is accessed by
// frames.
func (v *View) Answered(key link.Key, length uint64) error {
	if v.state != viewAsked {
		return fmt.Errorf("%w: it tells of a window twice", link.ErrProtocol)
	}
	v.key, v.length, v.state = key, length, viewOpen
	if key.Key == 0 {
		v.state = viewFrames
	}
	return nil
}

// Reach returns the key of n bytes at off. It returns false if they are accessed by frames,
// as accesses outside of the window are, so that the target detects the mistake.
func (v *View) Reach(off, n uint64) (link.Key, bool) {
	if v.state != viewOpen || v.closing || n > v.length || off > v.length-n {
		return link.Key{}, false
	}
	return link.Key{Key: v.key.Key, Addr: v.key.Addr + off}, true
}

// Started counts an operation.
func (v *View) Started() { v.under++ }

// Ended counts the end of an operation; over means that Concealed must be sent now. After
// the target has refused a key, the window is accessed by frames.
func (v *View) Ended(err error) (over bool) {
	v.under--
	if errors.Is(err, link.ErrKey) {
		v.state = viewFrames
	}
	return v.closing && v.under == 0
}

// Conceal handles the message that the window has ended; over means that Concealed must be
// sent now, otherwise when the last operation has ended.
func (v *View) Conceal() (over bool, err error) {
	if v.closing || v.state == viewAsked {
		return false, fmt.Errorf("%w: a window ends that is not known", link.ErrProtocol)
	}
	v.closing = true
	return v.under == 0, nil
}

// Accessed records an access of a rank by the frame seq.
func (v *View) Accessed(rank int, seq uint64) {
	for len(v.last) <= rank {
		v.last = append(v.last, 0)
	}
	v.last[rank] = seq
}

// Flushed records that all frames of a rank up to seq are flushed.
func (v *View) Flushed(rank int, seq uint64) {
	if rank < len(v.last) && v.last[rank] <= seq {
		v.last[rank] = 0
	}
}

// Quiet reports whether all of a rank's frames are flushed, and the window is exposed: then
// a flush needs no frame.
func (v *View) Quiet(rank int) bool {
	return v.state == viewOpen && !v.closing && (rank >= len(v.last) || v.last[rank] == 0)
}
