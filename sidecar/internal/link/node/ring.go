package node

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The segment of a pair of sidecars. The connecting side makes it. It holds a page of
// words, then the bytes of the ring of each direction.
//
//	0  words of the ring from the connector to the acceptor
//
// 512  words of the other ring
//
//	4096  bytes of the first, then bytes of the second
//
// The words of one ring. Each has a cache line of 64 bytes to itself, since each has one
// writer, except the flags, which one side sets and the other clears.
const (
	offTail     = 0   // bytes written so far; written by the writer
	offHead     = 64  // bytes read so far; written by the reader
	offSleeps   = 128 // 1: the reader sleeps, or does not read this ring, until it is woken
	offWaits    = 192 // 1: the writer waits for room
	offControls = 256 // control messages sent, without wake-ups; written by the writer
	ringWords   = 512
	headBytes   = 4096
)

// The size of a ring. The bytes in flight should stay in the caches of two cores, hence
// 256 KiB; with many sidecars on a machine the sum of the rings bounds the size.
const (
	ringBytes = 256 << 10 // up to fewPeers sidecars in the job
	ringFew   = 32 << 10  // up to somePeers
	fewPeers  = 16
	somePeers = 64
	ringMany  = 16 << 10 // in larger jobs
)

// ringSize returns the bytes of a ring in a job of peers sidecars.
func ringSize(peers int) int {
	switch {
	case peers <= fewPeers:
		return ringBytes
	case peers <= somePeers:
		return ringFew
	}
	return ringMany
}

func segmentBytes(ring int) int { return headBytes + 2*ring }

// frameAlign is the alignment of frames in the ring. It is the size of a header, so that
// a header never wraps.
const frameAlign = 64

func aligned(n int) int { return (n + frameAlign - 1) &^ (frameAlign - 1) }

// ringEnd is one end of a ring: its words, its bytes and at, the position of this end.
// The position that the other end publishes is checked against the ring's size before its
// use.
type ringEnd struct {
	mem       []byte
	at        uint64
	mine      *atomic.Uint64 // published value of at
	other     *atomic.Uint64
	published uint64 // value of at when it was last published
	sleep     *atomic.Uint64
	waits     *atomic.Uint64
	controls  *atomic.Uint64
}

// newRingEnd returns an end of ring i of a segment.
func newRingEnd(seg []byte, i int, writer bool) ringEnd {
	words, size := seg[i*ringWords:(i+1)*ringWords], (len(seg)-headBytes)/2
	w := ringEnd{
		mem: seg[headBytes+i*size : headBytes+(i+1)*size], mine: word(words, offHead), other: word(words, offTail),
		sleep: word(words, offSleeps), waits: word(words, offWaits), controls: word(words, offControls),
	}
	if writer {
		w.mine, w.other = w.other, w.mine
	}
	return w
}

var errRing = fmt.Errorf("%w: the positions of a ring are further apart than its size", link.ErrProtocol)

// room returns how many bytes the writer may write.
func (w *ringEnd) room() (int, error) {
	used := w.at - w.other.Load()
	if used > uint64(len(w.mem)) {
		return 0, errRing
	}
	return len(w.mem) - int(used), nil
}

// ready returns how many bytes the reader may read.
func (w *ringEnd) ready() (int, error) {
	n := w.other.Load() - w.at
	if n > uint64(len(w.mem)) {
		return 0, errRing
	}
	return int(n), nil
}

// span returns the ring's next bytes, up to n and to the end of its memory.
func (w *ringEnd) span(n int) []byte {
	i := int(w.at % uint64(len(w.mem)))
	return w.mem[i:min(i+n, len(w.mem))]
}

// put writes b. Preconditions: there is room.
func (w *ringEnd) put(b []byte) {
	n := copy(w.span(len(b)), b)
	copy(w.mem, b[n:])
	w.at += uint64(len(b))
}

// get reads len(b) bytes. Preconditions: ready is at least len(b).
func (w *ringEnd) get(b []byte) {
	n := copy(b, w.span(len(b)))
	copy(b[n:], w.mem)
	w.at += uint64(len(b))
}

// peek copies the next header without consuming it. Preconditions: w is at the beginning
// of a frame.
func (w *ringEnd) peek(b *[wire.HeaderBytes]byte) { copy(b[:], w.span(wire.HeaderBytes)) }

// pad advances to the beginning of the next frame.
func (w *ringEnd) pad() { w.at = (w.at + frameAlign - 1) &^ (frameAlign - 1) }

// commit publishes the position of this end.
func (w *ringEnd) commit() {
	if w.published != w.at {
		w.published = w.at
		publish(w.mine, w.at)
	}
}

// publish stores v before any later load. A store of sync/atomic has this order by
// itself, but not with the race detector, whose stores are plain ones on amd64: a side
// that went to sleep and a side that wrote missed each other. On amd64 both are the same
// instruction.
func publish(word *atomic.Uint64, v uint64) { word.Swap(v) }

// clearFlag clears a flag of the other side and reports whether it was set.
func clearFlag(flag *atomic.Uint64) bool { return flag.Load() != 0 && flag.Swap(0) != 0 }

// errSegment means that the memory of a peer is not a segment of two rings.
var errSegment = errors.New("the memory is not a segment of two rings")
