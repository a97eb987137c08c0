package node

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The board is where a sidecar's registrations stand, for its peers to read. Its places:
//
//	0  u64  key, 0: free. Its low bits are the place, the others are drawn at random.
//	8  u64  region
//	16 u64  offset
//	24 u64  length
//
// A key is written last and cleared first: who reads the key, the rest, and the same key
// again has read a registration; and who reads the key once more when it has copied what
// it says knows whether the registration still stood then.
const (
	placeBytes = 32
	placeBits  = 14
	places     = 1 << placeBits
	boardBytes = places * placeBytes
)

// errBoard says that there are as many registrations as there may be: what cannot be
// registered goes by frames.
var errBoard = errors.New("no place for another registration")

// board is a sidecar's own.
type board struct {
	mem  []byte
	free []uint16 // the last to be used next: few pages are touched
}

func newBoard(mem []byte) *board {
	b := &board{mem: mem, free: make([]uint16, places)}
	for i := range b.free {
		b.free[i] = uint16(places - 1 - i)
	}
	return b
}

// add registers ref.
func (b *board) add(ref link.Ref) (uint64, error) {
	n := len(b.free)
	if n == 0 {
		return 0, errBoard
	}
	at := b.free[n-1]
	b.free = b.free[:n-1]
	p := b.mem[int(at)*placeBytes:]
	word(p, 8).Store(uint64(ref.Region))
	word(p, 16).Store(ref.Off)
	word(p, 24).Store(ref.Len)
	key := newKey(at)
	word(p, 0).Store(key)
	return key, nil
}

// newKey draws the key of a place; it is not 0.
func newKey(at uint16) uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if k := binary.LittleEndian.Uint64(b[:])&^(places-1) | uint64(at); k>>placeBits != 0 {
			return k
		}
	}
}

// drop ends a registration; false: there is none.
func (b *board) drop(key uint64) bool {
	at := key & (places - 1)
	if w := word(b.mem[at*placeBytes:], 0); key == 0 || w.Load() != key {
		return false
	} else {
		w.Store(0)
	}
	b.free = append(b.free, uint16(at))
	return true
}

// stands reports whether the registration key is on a peer's board.
func stands(mem []byte, key uint64) bool {
	return key != 0 && word(mem[key&(places-1)*placeBytes:], 0).Load() == key
}

// find reads a registration of a peer.
func find(mem []byte, key uint64) (link.Ref, bool) {
	if !stands(mem, key) {
		return link.Ref{}, false
	}
	p := mem[key&(places-1)*placeBytes:]
	region, off, n := word(p, 8).Load(), word(p, 16).Load(), word(p, 24).Load()
	if !stands(mem, key) || region > uint64(^link.Region(0)) {
		return link.Ref{}, false
	}
	return link.Ref{Region: link.Region(region), Off: off, Len: n}, true
}

// within is the n bytes from addr on of a registration; an error if they are not in it.
func within(ref link.Ref, addr, n uint64) (link.Ref, error) {
	if n > ref.Len || addr > ref.Len-n {
		return link.Ref{}, fmt.Errorf("%w: %d bytes at %d", link.ErrKey, n, addr)
	}
	return ref.Slice(addr, n), nil
}
