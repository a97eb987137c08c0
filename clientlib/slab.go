package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// slab divides the session's slab into memory for chunks of large messages, which is its
// beginning, and slots for one small message each. Guarded by Session.mu.
type slab struct {
	chunks     arena
	pieceBytes int // of a message, in the smallest chunk of one
	taken      int // bytes of chunks that are in use,
	posted     int // of them, those of whole receives,
	borrowed   int // and bytes of chunks that are of the arena instead
	slotBytes  uint64
	slots      []uint64 // free ones, by offset
}

// A staged message's piece is large enough to hide the hand-over, and small enough that
// copying one overlaps with sending another: pieceMin bytes, or up to pieceMost times as
// many where the message is of as many pieces as may be under way.
const (
	pieceMin  = 64 << 10
	pieceMost = 4
)

// piecesMin are the pieces that even the smallest slab has room for: two for sends and two
// for receives.
const piecesMin = 4

// The part of the arena that chunks take which nobody waits for, and the most: what is
// copied long before it is asked for leaves the cache meanwhile.
const (
	arenaShare = 4
	arenaMost  = 1 << 20
)

// init leaves three eighths of the slab to chunks and cuts the rest into slots.
func (s *slab) init(size, eager int) error {
	share := size * 3 / 8 &^ (arenaAlign - 1)
	s.slotBytes = uint64(max(eager, arenaAlign))
	s.pieceBytes = min(pieceMin, share/piecesMin&^(arenaAlign-1))
	if s.pieceBytes == 0 {
		return fmt.Errorf("%w: a slab of %d bytes; raise memory.slabBytes in the job document", ErrNoMemory, size)
	}
	s.chunks.init(share)
	for off := uint64(share); off+s.slotBytes <= uint64(size); off += s.slotBytes {
		s.slots = append(s.slots, off)
	}
	return nil
}

func (s *slab) slot() (uint64, bool) {
	n := len(s.slots)
	if n == 0 {
		return 0, false
	}
	off := s.slots[n-1]
	s.slots = s.slots[:n-1]
	return off, true
}

func (s *slab) free(off uint64) { s.slots = append(s.slots, off) }

// chunk is a piece of shared memory that carries a message, or a part of a staged one.
type chunk struct {
	class shm.Class
	off   uint64
	bytes int
}

// chunk takes n bytes, which leaves so many.
func (s *slab) chunk(n, leaves int) (chunk, bool) {
	if s.taken+n+leaves > s.chunks.total {
		return chunk{}, false
	}
	off, ok := s.chunks.take(n)
	if !ok {
		return chunk{}, false
	}
	s.taken += n
	return chunk{shm.ClassSlab, uint64(off), n}, true
}

// piece is how much of a message goes at once.
func (s *slab) piece(message int) int {
	return min(max(message/stageDepth/s.pieceBytes, 1), pieceMost) * s.pieceBytes
}
