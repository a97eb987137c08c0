package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// slab divides the session's slab into slots for one small message each and
// chunks for larger ones. Guarded by Session.mu.
type slab struct {
	slotBytes  uint64
	chunkBytes int
	slots      []uint64 // free ones, by offset
	chunks     []uint64
	half       int // of the chunks: as many are for sends, and for receives,
	sends      int // which have so many,
	receives   int // and so many
	borrowed   int // bytes of chunks that are of the arena instead
}

// A piece of a message is large enough to hide the hand-over, and small enough that
// copying one overlaps with sending another. Larger ones, of messages that are as many of
// them as may be under way, are up to pieceMost times as large.
const (
	pieceBytes = 64 << 10
	pieceMost  = 4
)

// chunksMin are the chunks that even the smallest slab is cut into: two for
// sends and two for receives.
const chunksMin = 4

// The part of the arena that chunks take which nobody waits for, and the most: what is
// copied long before it is asked for leaves the cache meanwhile.
const (
	arenaShare = 4
	arenaMost  = 2 << 20
)

// init cuts three eighths of the slab into chunks and the rest into slots.
func (s *slab) init(size, eager int) error {
	share := size * 3 / 8
	s.slotBytes = uint64(max(eager, arenaAlign))
	s.chunkBytes = min(pieceBytes, share/chunksMin&^(arenaAlign-1))
	if s.chunkBytes == 0 {
		return fmt.Errorf("%w: a slab of %d bytes; raise memory.slabBytes in the job document", ErrNoMemory, size)
	}
	n := share / s.chunkBytes
	s.half = n / 2
	for i := range n {
		s.chunks = append(s.chunks, uint64(i*s.chunkBytes))
	}
	for off := uint64(n * s.chunkBytes); off+s.slotBytes <= uint64(size); off += s.slotBytes {
		s.slots = append(s.slots, off)
	}
	return nil
}

func take(list *[]uint64) (uint64, bool) {
	n := len(*list)
	if n == 0 {
		return 0, false
	}
	off := (*list)[n-1]
	*list = (*list)[:n-1]
	return off, true
}

func (s *slab) slot() (uint64, bool) { return take(&s.slots) }

func (s *slab) free(off uint64) { s.slots = append(s.slots, off) }

// chunk is a piece of shared memory that carries a message, or a part of a staged one.
type chunk struct {
	class shm.Class
	off   uint64
	bytes int
}

// held counts the chunks of the side that o is of.
func (s *slab) held(o *op) *int {
	if o.receives {
		return &s.receives
	}
	return &s.sends
}

// chunk takes one for o, which leaves so many to others of its side: sends have one half
// of them, and receives the other. What both wanted they could keep from each other, and
// two ranks that exchange messages wait for ever.
func (s *slab) chunk(o *op, leaves int) (chunk, bool) {
	held := s.held(o)
	if *held+leaves >= s.half {
		return chunk{}, false
	}
	off, ok := take(&s.chunks)
	if ok {
		*held++
	}
	return chunk{shm.ClassSlab, off, s.chunkBytes}, ok
}
