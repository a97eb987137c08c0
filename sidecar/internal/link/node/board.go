package node

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A board holds the registrations of a sidecar, for its peers to read. An entry has the
// fields:
//
//	0  u64  key, 0: free. Its low bits are the index, the others are drawn at random.
//	8  u64  region
//	16 u64  offset
//	24 u64  length
//
// A key is written last and cleared first. So a reader that loads the key, the other
// fields, and the same key again has read one registration; and a reader that loads the
// key once more after its copy knows whether the registration was valid during the copy.
const (
	entryBytes = 32
	entryBits  = 14             // of the index in a key: 50 random bits remain
	entries    = 1 << entryBits // registrations at a time: 512 KiB of shared memory
	boardBytes = entries * entryBytes
)

// errBoard means that all entries are in use; the memory is then sent in frames.
var errBoard = fmt.Errorf("node: %d registrations, as many as the board holds", entries)

// board is the board of this sidecar.
type board struct {
	mem  []byte
	free []uint16 // a stack: the entry freed last is used next, so that few pages are touched
}

func newBoard(mem []byte) *board {
	b := &board{mem: mem, free: make([]uint16, entries)}
	for i := range b.free {
		b.free[i] = uint16(entries - 1 - i)
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
	p := b.mem[int(at)*entryBytes:]
	word(p, 8).Store(uint64(ref.Region))
	word(p, 16).Store(ref.Off)
	word(p, 24).Store(ref.Len)
	key := newKey(at)
	word(p, 0).Store(key)
	return key, nil
}

// newKey returns a random key of an entry; it is not 0.
func newKey(at uint16) uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if k := binary.LittleEndian.Uint64(b[:])&^(entries-1) | uint64(at); k>>entryBits != 0 {
			return k
		}
	}
}

// remove ends a registration; it returns false if there is none under key.
func (b *board) remove(key uint64) bool {
	at := key & (entries - 1)
	if w := word(b.mem[at*entryBytes:], 0); key == 0 || w.Load() != key {
		return false
	} else {
		w.Store(0)
	}
	b.free = append(b.free, uint16(at))
	return true
}

// valid reports whether the registration key is on a peer's board.
func valid(mem []byte, key uint64) bool {
	return key != 0 && word(mem[key&(entries-1)*entryBytes:], 0).Load() == key
}

// lookup returns the registration of a peer under key.
func lookup(mem []byte, key uint64) (link.Ref, bool) {
	if !valid(mem, key) {
		return link.Ref{}, false
	}
	p := mem[key&(entries-1)*entryBytes:]
	region, off, n := word(p, 8).Load(), word(p, 16).Load(), word(p, 24).Load()
	if !valid(mem, key) || region > uint64(^link.Region(0)) {
		return link.Ref{}, false
	}
	return link.Ref{Region: link.Region(region), Off: off, Len: n}, true
}

// within returns the n bytes of a registration from addr on, or an error if they are not
// within it.
func within(ref link.Ref, addr, n uint64) (link.Ref, error) {
	if n > ref.Len || addr > ref.Len-n {
		return link.Ref{}, fmt.Errorf("%w: %d bytes at offset %d of a registration of %d bytes", link.ErrKey, n, addr, ref.Len)
	}
	return ref.Slice(addr, n), nil
}
