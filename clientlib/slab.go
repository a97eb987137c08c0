package outrigger

// slab divides the session's slab into slots for one small message each and
// chunks for the pieces of large ones. Guarded by Session.mu.
type slab struct {
	slotBytes uint64
	slots     []uint64 // free ones, by offset
	chunks    []uint64
}

// chunkBytes is a staged message's piece: large enough to hide the hand-over,
// small enough that copying one overlaps with sending another.
const chunkBytes = 64 << 10

// slabChunks is the share of the slab that is chunks: three eighths.
func (s *slab) init(size, slotBytes int) {
	s.slotBytes = uint64(max(slotBytes, 64))
	chunks := size * 3 / 8 / chunkBytes
	for i := range chunks {
		s.chunks = append(s.chunks, uint64(i*chunkBytes))
	}
	for off := chunks * chunkBytes; off+int(s.slotBytes) <= size; off += int(s.slotBytes) {
		s.slots = append(s.slots, uint64(off))
	}
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
