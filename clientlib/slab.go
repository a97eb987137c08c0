package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// slab divides the session's slab into slots, each for one small message, and chunks for larger
// messages. Session.mu guards it.
type slab struct {
	slotBytes  uint64
	chunkBytes int
	slots      []uint64 // offsets of the free slots
	chunks     []uint64
	half       int // half the number of chunks: the maximum for sends, and the maximum for receives
	sends      int // number of chunks that sends use
	receives   int // number of chunks that receives use
	borrowed   int // bytes of chunks that were allocated in the arena, because the slab had none
}

// pieceBytes is the size of a chunk: large enough to hide the cost of handing it over, small
// enough that copying one chunk overlaps with sending another. If a message has more than
// stageDepth chunks, they are up to pieceMost times as large.
const (
	pieceBytes = 64 << 10
	pieceMost  = 4
)

// chunksMin is the number of chunks of the smallest slab: two for sends and two for receives.
const chunksMin = 4

// Chunks that no peer waits for may use one part in arenaShare of the arena, and at most
// arenaMost bytes: data that is copied long before it is sent has left the cache by then.
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

// popOffset removes the last offset of a list.
func popOffset(list *[]uint64) (uint64, bool) {
	n := len(*list)
	if n == 0 {
		return 0, false
	}
	off := (*list)[n-1]
	*list = (*list)[:n-1]
	return off, true
}

func (s *slab) slot() (uint64, bool) { return popOffset(&s.slots) }

func (s *slab) free(off uint64) { s.slots = append(s.slots, off) }

// chunk is a range of shared memory that carries a message, or a part of a staged one.
type chunk struct {
	class shm.Class
	off   uint64
	bytes int
}

// held returns the counter of chunks of o's side: sends or receives.
func (s *slab) held(o *op) *int {
	if o.receives {
		return &s.receives
	}
	return &s.sends
}

// chunk allocates a chunk for o, if at least leaves chunks remain for other operations of its
// side. Sends have one half of the chunks and receives the other: if both took from one pool,
// the sends of two ranks that exchange messages could hold all chunks while the receives that
// they wait for get none, a deadlock.
func (s *slab) chunk(o *op, leaves int) (chunk, bool) {
	held := s.held(o)
	if *held+leaves >= s.half {
		return chunk{}, false
	}
	off, ok := popOffset(&s.chunks)
	if ok {
		*held++
	}
	return chunk{shm.ClassSlab, off, s.chunkBytes}, ok
}
