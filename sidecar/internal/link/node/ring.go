package node

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The segment of a pair of sidecars, which whoever connects makes: a page of words, then
// the bytes of the ring of each direction.
//
//	   0  words of the ring from the connector to the acceptor
//	 512  words of the other one
//	4096  bytes of the first, then bytes of the second
//
// Words of one ring, a line of 64 bytes each, since each has one writer but the flags,
// which one side sets and the other clears:
const (
	offTail   = 0   // bytes written so far; the writer's
	offHead   = 64  // bytes read so far; the reader's
	offSleeps = 128 // 1: the reader sleeps until it is woken
	offWaits  = 192 // 1: the writer waits for room
	offSaid   = 256 // words by the local socket that do more than wake; the writer's
	ringWords = 512
	headBytes = 4096
)

// The size of a ring. What is under way should stay in the caches of two cores. With
// many sidecars on a machine it is what all of them take that counts.
const (
	ringBytes = 256 << 10
	ringFew   = 32 << 10
	fewPeers  = 16
	somePeers = 64
	ringMany  = 16 << 10
)

// ringSize is the bytes of a ring in a job of so many sidecars.
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

// frameAlign is where frames begin: a header never wraps.
const frameAlign = 64

func aligned(n int) int { return (n + frameAlign - 1) &^ (frameAlign - 1) }

// way is one end of a ring, as its words and bytes; at is how far this end has come, and
// what the other says is never believed beyond the ring's size.
type way struct {
	mem   []byte
	at    uint64
	mine  *atomic.Uint64 // of at, as the other end sees it
	other *atomic.Uint64
	told  uint64 // of at
	sleep *atomic.Uint64
	waits *atomic.Uint64
	said  *atomic.Uint64
}

// newWay makes an end of ring i of a segment.
func newWay(seg []byte, i int, writer bool) way {
	words, size := seg[i*ringWords:(i+1)*ringWords], (len(seg)-headBytes)/2
	w := way{
		mem: seg[headBytes+i*size : headBytes+(i+1)*size], mine: word(words, offHead), other: word(words, offTail),
		sleep: word(words, offSleeps), waits: word(words, offWaits), said: word(words, offSaid),
	}
	if writer {
		w.mine, w.other = w.other, w.mine
	}
	return w
}

var errRing = fmt.Errorf("%w: positions of a ring that cannot be", link.ErrProtocol)

// room is how many bytes the writer may write.
func (w *way) room() (int, error) {
	used := w.at - w.other.Load()
	if used > uint64(len(w.mem)) {
		return 0, errRing
	}
	return len(w.mem) - int(used), nil
}

// ready is how many bytes the reader may read.
func (w *way) ready() (int, error) {
	n := w.other.Load() - w.at
	if n > uint64(len(w.mem)) {
		return 0, errRing
	}
	return int(n), nil
}

// span is the ring's next bytes, up to n and to the end of its memory.
func (w *way) span(n int) []byte {
	i := int(w.at % uint64(len(w.mem)))
	return w.mem[i:min(i+n, len(w.mem))]
}

// put writes b. Preconditions: there is room.
func (w *way) put(b []byte) {
	n := copy(w.span(len(b)), b)
	copy(w.mem, b[n:])
	w.at += uint64(len(b))
}

// get reads len(b) bytes. Preconditions: they are there.
func (w *way) get(b []byte) {
	n := copy(b, w.span(len(b)))
	copy(b[n:], w.mem)
	w.at += uint64(len(b))
}

// peek reads the header that is there, and leaves it. Preconditions: w is where a frame
// begins.
func (w *way) peek(b *[wire.HeaderBytes]byte) { copy(b[:], w.span(wire.HeaderBytes)) }

// pad goes on to where the next frame begins.
func (w *way) pad() { w.at = (w.at + frameAlign - 1) &^ (frameAlign - 1) }

// tell publishes how far this end has come.
func (w *way) tell() {
	if w.told != w.at {
		w.told = w.at
		publish(w.mine, w.at)
	}
}

// publish stores v before any later load. A store of sync/atomic is ordered so by itself,
// but not with the race detector, whose stores are plain ones on amd64: a side that went
// to sleep and one that wrote missed each other. On amd64 both are the same instruction.
func publish(word *atomic.Uint64, v uint64) { word.Swap(v) }

// take clears a flag of the other side and reports whether it was set.
func take(flag *atomic.Uint64) bool { return flag.Load() != 0 && flag.Swap(0) != 0 }

// errSegment refuses what is no segment of two rings.
var errSegment = errors.New("no segment of two rings")
