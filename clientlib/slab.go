package outrigger

import "fmt"

// slab divides the session's slab into slots for one small message each and
// chunks for the pieces of large ones. Guarded by Session.mu.
type slab struct {
	slotBytes  uint64
	chunkBytes int
	reserve    int      // chunks that sends leave to receives
	slots      []uint64 // free ones, by offset
	chunks     []uint64
	borrowed   int // bytes of chunks that are of the arena instead
}

// chunkMax is a staged message's piece: large enough to hide the hand-over,
// small enough that copying one overlaps with sending another.
const chunkMax = 64 << 10

// chunksMin are the chunks that even the smallest slab is cut into: two for
// sends and two for receives.
const chunksMin = 4

// init cuts three eighths of the slab into chunks and the rest into slots.
func (s *slab) init(size, eager int) error {
	share := size * 3 / 8
	s.slotBytes = uint64(max(eager, arenaAlign))
	s.chunkBytes = min(chunkMax, share/chunksMin&^(arenaAlign-1))
	if s.chunkBytes == 0 {
		return fmt.Errorf("%w: a slab of %d bytes; raise memory.slabBytes in the job document", ErrNoMemory, size)
	}
	n := share / s.chunkBytes
	s.reserve = n / 2
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
