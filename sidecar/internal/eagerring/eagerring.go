// Package eagerring holds the eager channels: small frames go to a peer by remote write,
// into a ring of slots that the peer polls. A channel only carries frames: numbers,
// acknowledgements, credit and retransmission are those of the connection to the same
// peer (api/wire/PROTOCOL.md §5.7).
//
// A Sender is the ring of a peer, to which this side writes; a Receiver is the ring to
// which a peer writes. Memory comes in as bytes, remote writes go out as values; neither
// knows a link. Package core/channel opens and uses them. The channels are those of paper
// 004, by their names there; each has a file with its picture.
package eagerring

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Kind is an eager channel. Both sides of a job use the same.
type Kind uint8

// The channels. Basic and ZeroCopy need writes that are placed in the order in which they
// were started; on other links PiggyBack replaces them.
const (
	PiggyBack Kind = iota // flags at head and tail of a slot; acknowledgements free slots
	Basic                 // head and tail replicated, each by a write of its own
	Pipeline              // frames over several slots, copied while the slots before are in flight
	ZeroCopy              // payloads written from their memory
)

var names = [...]string{"piggyback", "basic", "pipeline", "zerocopy"}

func (k Kind) String() string { return names[k] }

// Named returns the channel with a name, or PiggyBack.
func Named(name string) Kind { return Kind(max(slices.Index(names[:], name), 0)) }

// over returns the channel that replaces k on a link.
func (k Kind) over(c link.Caps) Kind {
	if (k == Basic || k == ZeroCopy) && !(c.InOrder && c.Ordered) {
		return PiggyBack
	}
	return k
}

// Slots is the number of slots of a ring: frames in flight, of which each costs 2 or 16
// KiB of memory for each peer.
const Slots = 16

// controlBytes is the memory behind the slots: the head and the tail of Basic.
const controlBytes = 64

// slotBytes returns the size of a slot: the header (48 or 56 bytes, wire.SlotHead),
// payload, and the tail flag.
func (k Kind) slotBytes() int {
	if k == Pipeline || k == ZeroCopy {
		return 16 << 10 // paper 004 §4.4
	}
	return 2 << 10
}

// Bytes returns the size of a ring, and of the copy from which it is written.
func (k Kind) Bytes() uint64 { return uint64(Slots*k.slotBytes() + controlBytes) }

// Write is a remote write: bytes of the sender's copy of the ring to the same offset of
// the ring, or a frame's payload to At.
type Write struct {
	Payload bool   // the frame's whole payload; otherwise Len bytes of the copy from At on
	At, Len uint64 // in the ring
	Slot    int    // slot that the write fills; -1: none
}

// maxWrites bounds the writes of one frame: a pipelined frame of 64 KiB has five.
const maxWrites = 6

// slotOf returns the offset of slot number n, from 0.
func (k Kind) slotOf(n uint64) int { return int(n%Slots) * k.slotBytes() }

// tailOf returns the offset of the flag behind n bytes, and the end of the slot's used
// part.
func tailOf(n int) (flag, end int) {
	flag = (n + wire.TailBytes - 1) &^ (wire.TailBytes - 1)
	return flag, flag + wire.TailBytes
}
