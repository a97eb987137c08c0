// Package eagerring holds the eager channels: how small frames go to a peer by
// remote write, into a ring of slots that the peer polls. A channel only carries
// frames: their numbers, acknowledgements, credit and repetition are those of the
// connection to the same peer (api/wire/PROTOCOL.md §5.7).
//
// A Sender is the ring of a peer, as this side writes to it; a Receiver is the
// ring that a peer writes to. Memory comes in as bytes, remote writes go out as
// values; neither knows a link. The channels are those of paper 004, by their
// names there, a file each with its picture.
package eagerring

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Kind is an eager channel. Both sides of a job use the same.
type Kind uint8

// The channels. Basic and ZeroCopy need writes that are placed in the order in
// which they were started, and are PiggyBack elsewhere.
const (
	PiggyBack Kind = iota // flags at head and tail of a slot; room is told by acknowledgements
	Basic                 // head and tail replicated, each told by a write of its own
	Pipeline              // frames over several slots, copied while the ones before are under way
	ZeroCopy              // payloads written from where they are
)

var names = [...]string{"piggyback", "basic", "pipeline", "zerocopy"}

func (k Kind) String() string { return names[k] }

// Named is the channel of a name, and PiggyBack of others.
func Named(name string) Kind { return Kind(max(slices.Index(names[:], name), 0)) }

// over is the channel that k is over a link.
func (k Kind) over(c link.Caps) Kind {
	if (k == Basic || k == ZeroCopy) && !(c.InOrder && c.Ordered) {
		return PiggyBack
	}
	return k
}

// Slots is how many slots a ring has.
const Slots = 16

// controlBytes lie behind the slots: the head and the tail of Basic.
const controlBytes = 64

// slotBytes is the size of a slot: the header (48 or 56 bytes, wire.SlotHead), payload,
// and the tail flag.
func (k Kind) slotBytes() int {
	if k == Pipeline || k == ZeroCopy {
		return 16 << 10 // paper 004 §4.4
	}
	return 2 << 10
}

// Bytes is the memory of a ring, and of the copy that is written from.
func (k Kind) Bytes() uint64 { return uint64(Slots*k.slotBytes() + controlBytes) }

// Write is a remote write: bytes of the sender's copy of the ring, or of a
// frame's payload, to the same place of the ring or to At.
type Write struct {
	Payload bool   // the frame's payload, whole; else Len bytes from At on of the copy
	At, Len uint64 // in the ring
	Slot    int    // that the write fills; -1: none
}

// maxWrites bounds the writes of one frame: a pipelined one of 64 KiB.
const maxWrites = 6

// slotOf is where slot number n, from 0, begins.
func (k Kind) slotOf(n uint64) int { return int(n%Slots) * k.slotBytes() }

// tailOf is the place of the flag behind n bytes, and where the slot's used part
// ends.
func tailOf(n int) (flag, end int) {
	flag = (n + wire.TailBytes - 1) &^ (wire.TailBytes - 1)
	return flag, flag + wire.TailBytes
}
