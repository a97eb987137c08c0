// Package expose holds how a window's memory is reached without its sidecar's
// doing: who was told its key, when the key may go (Exposure, at the side that has
// the memory), and what may be done with it (View, at a side that reaches for it),
// without the requests, frames and links around them. P§5.6 is a section of
// api/wire/PROTOCOL.md.
//
//	origin                            target
//	first access, as a frame -------> carried out
//	View.Want: Expose --------------> Exposure.Ask: registered once for all peers
//	View.Told <---------------------- Exposed: key, address, length
//	remote writes and reads ========> (nobody looks)
//	                                  the window is freed: Exposure.Close
//	View.Conceal <------------------- Conceal, to each that was told
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

// Holder is a peer that was told of a window, and its number for it.
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
	placing int // frames whose payload is on its way into the window
	holders []Holder
}

// Ask takes a peer's wish to reach the window. The first one has its memory
// registered, which is told by Registered where it succeeds. All who have asked are
// told of the end, with a key or without.
func (x *Exposure) Ask(h Holder) (register bool, err error) {
	if slices.ContainsFunc(x.holders, func(o Holder) bool { return o.Peer == h.Peer }) {
		return false, fmt.Errorf("%w: it asks twice for one window", link.ErrProtocol)
	}
	x.holders = append(x.holders, h)
	register, x.asked = !x.asked, true
	return register, nil
}

// Registered has the key that peers are told from now on.
func (x *Exposure) Registered(k link.Key) { x.key, x.keyed = k, true }

// Key is the registration, which ends with the exposure.
func (x *Exposure) Key() (link.Key, bool) { return x.key, x.keyed }

// Close begins the end: the holders are to be told.
func (x *Exposure) Close() []Holder {
	x.closing = true
	return x.holders
}

// Leave notes that a peer does not reach for the window any more: it has said so, or
// is gone. false: it never did.
func (x *Exposure) Leave(p link.Peer) bool {
	i := slices.IndexFunc(x.holders, func(h Holder) bool { return h.Peer == p })
	if i < 0 {
		return false
	}
	x.holders = slices.Delete(x.holders, i, i+1)
	return true
}

// Forget notes the same for all holders that are gone.
func (x *Exposure) Forget(gone func(Holder) bool) { x.holders = slices.DeleteFunc(x.holders, gone) }

// Placing notes that a link reads the payload of a frame into the window.
func (x *Exposure) Placing() { x.placing++ }

// Placed notes the end of that.
func (x *Exposure) Placed() { x.placing = max(x.placing-1, 0) } // 0: it was abandoned

// Abandon forgets all holders: their operations end with the registration.
func (x *Exposure) Abandon() { x.holders, x.placing = nil, 0 }

// Over reports that the window has ended and nobody writes to it any more.
func (x *Exposure) Over() bool { return x.closing && len(x.holders) == 0 && x.placing == 0 }

// Holders is how many peers may reach for the window.
func (x *Exposure) Holders() int { return len(x.holders) }

// Closing reports that the window has ended.
func (x *Exposure) Closing() bool { return x.closing }

// View is a window of another sidecar as its ranks here reach it.
type View struct {
	key     link.Key
	length  uint64
	state   viewState
	under   int      // operations under way
	last    []uint64 // by rank here: the frame of its last access by frame, 0: none that was not flushed
	closing bool
}

type viewState uint8

const (
	viewAsked  viewState = iota
	viewOpen             // may be reached
	viewFrames           // may not
)

// Told takes the answer. A key of 0 is none.
func (v *View) Told(key link.Key, length uint64) error {
	if v.state != viewAsked {
		return fmt.Errorf("%w: it tells of a window twice", link.ErrProtocol)
	}
	v.key, v.length, v.state = key, length, viewOpen
	if key.Key == 0 {
		v.state = viewFrames
	}
	return nil
}

// Reach is the key of n bytes at off; false: they are accessed by frames, as are
// those outside of the window, so that its side knows of the mistake.
func (v *View) Reach(off, n uint64) (link.Key, bool) {
	if v.state != viewOpen || v.closing || n > v.length || off > v.length-n {
		return link.Key{}, false
	}
	return link.Key{Key: v.key.Key, Addr: v.key.Addr + off}, true
}

// Started counts an operation.
func (v *View) Started() { v.under++ }

// Ended counts the end of one; over says that Concealed is to be told now. What its
// target has refused is not tried again.
func (v *View) Ended(err error) (over bool) {
	v.under--
	if errors.Is(err, link.ErrKey) {
		v.state = viewFrames
	}
	return v.closing && v.under == 0
}

// Conceal takes the news that the window has ended; over says that Concealed is to be
// told now, else when the last operation has ended.
func (v *View) Conceal() (over bool, err error) {
	if v.closing || v.state == viewAsked {
		return false, fmt.Errorf("%w: a window ends that is not known", link.ErrProtocol)
	}
	v.closing = true
	return v.under == 0, nil
}

// Spoke notes an access of a rank by the frame seq.
func (v *View) Spoke(rank int, seq uint64) {
	for len(v.last) <= rank {
		v.last = append(v.last, 0)
	}
	v.last[rank] = seq
}

// Flushed notes that all of a rank up to the frame seq is flushed.
func (v *View) Flushed(rank int, seq uint64) {
	if rank < len(v.last) && v.last[rank] <= seq {
		v.last[rank] = 0
	}
}

// Quiet reports that all of a rank's frames are flushed, and that the window is there:
// a flush needs no frame.
func (v *View) Quiet(rank int) bool {
	return v.state == viewOpen && !v.closing && (rank >= len(v.last) || v.last[rank] == 0)
}
