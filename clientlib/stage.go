package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// stageDepth is the most chunks of one message that are with the engine: enough to copy one while
// others are sent.
const stageDepth = 4

// chunkQueue is a short queue of chunks in message order.
type chunkQueue struct {
	list [stageDepth]chunk
	n    int
}

func (q *chunkQueue) push(k chunk) {
	q.list[q.n] = k
	q.n++
}

func (q *chunkQueue) pop() chunk {
	k := q.list[0]
	copy(q.list[:], q.list[1:q.n])
	q.n--
	return k
}

// queueStage queues an operation for which chunks can be submitted.
func (s *Session) queueStage(id uint32, o *op) {
	if !o.queued && !o.done && o.off < o.want {
		o.queued = true
		s.todo.stage.push(id)
	}
}

// stage submits chunks of a staged operation: filled ones of a send, empty ones of a matched
// receive (LAYOUT §5.1). It must not be called while another submission waits for room in the
// ring: chunks of one message would overtake each other.
func (s *Session) stage(id uint32, o *op) error {
	if o.exposed && !o.peerWaits {
		return nil // the device reads the memory, or the engine asks for chunks
	}
	for !o.done && o.off < o.want && o.chunks.n < stageDepth {
		if !s.hasRoom() {
			s.queueStage(id, o)
			return nil
		}
		k, ok := s.chunkFor(o)
		if !ok {
			if o.chunks.n == 0 && o.moves() {
				o.queued = true
				s.queueStarved(id, o)
			}
			return nil
		}
		mem := s.memoryOf(k)
		n := min(len(mem), o.want-o.off)
		if !o.receives {
			copy(mem, o.buf[o.off:o.off+n])
		}
		o.off += n
		o.chunks.push(k)
		d := shm.Descriptor{Op: shm.OpStage, Req: id, Class: k.class}
		d.SetBody(k.off, uint64(n), 0, 0)
		if err := s.push(&d); err != nil {
			return err
		}
	}
	return nil
}

// moves reports whether the peer waits for chunks of o, so that every chunk that o gets is certain
// to be returned.
func (o *op) moves() bool { return o.receives || o.peerWaits }

// chunkFor allocates a chunk for the next part of a message. An operation keeps its chunks until it
// ends, so that every message that moves continues to move. A send that no receive has matched yet
// may hold its chunks for ever: it gets them only while enough are free, and is queued again when
// its receive has matched (LAYOUT §5.1). Such sends leave one chunk of the slab to sends that move,
// and whole receives leave half of theirs. Beyond that, chunks come from the arena.
func (s *Session) chunkFor(o *op) (chunk, bool) {
	if o.spare.n > 0 {
		return o.spare.pop(), true
	}
	size := s.slab.chunkBytes
	if n := o.want / stageDepth / size; n > 1 {
		if k, ok := s.borrowChunk(min(n, pieceMost)*size, s.arenaShare()); ok {
			return k, true
		}
	}
	leaves, most := 1, s.arenaShare()
	if o.moves() {
		leaves = 0
		if o.chunks.n == 0 { // without this chunk the message does not move
			most = len(s.arenaMem)
		}
	}
	if k, ok := s.slab.chunk(o, leaves); ok {
		return k, true
	}
	return s.borrowChunk(size, most)
}

// arenaShare returns how many bytes of the arena chunks may use that no peer waits for.
func (s *Session) arenaShare() int { return min(len(s.arenaMem)/arenaShare, arenaMost) }

// borrowChunk allocates a chunk of n bytes in the arena, if all chunks there then have at most most
// bytes.
func (s *Session) borrowChunk(n, most int) (chunk, bool) {
	if s.slab.borrowed+n > most {
		return chunk{}, false
	}
	off, ok := s.arena.tryAlloc(n)
	if ok {
		s.slab.borrowed += n
	}
	return chunk{shm.ClassArena, uint64(off), n}, ok
}

// allocWhole allocates one chunk for a whole message that is too large for a slot and fits into a
// chunk: the message then needs no staging. A receive may hold its chunk for ever.
func (s *Session) allocWhole(o *op, n int) bool {
	if uint64(n) <= s.slab.slotBytes || n > s.slab.chunkBytes {
		return false
	}
	leaves := 1
	if o.receives {
		leaves = s.slab.half / 2
	}
	k, ok := s.slab.chunk(o, leaves)
	if !ok {
		k, ok = s.borrowChunk((n+arenaAlign-1)&^(arenaAlign-1), s.arenaShare()/2)
	}
	if ok {
		o.whole = true
		o.spare.push(k)
	}
	return ok
}

// memoryOf returns the memory of a chunk.
func (s *Session) memoryOf(k chunk) []byte {
	mem := s.slabMem
	if k.class == shm.ClassArena {
		mem = s.arenaMem
	}
	return mem[k.off : k.off+uint64(k.bytes)]
}

// freeChunk frees a chunk of o and gives it to the next operation that waits for one.
func (s *Session) freeChunk(o *op, k chunk) {
	if k.class == shm.ClassArena {
		_ = s.arena.release(int(k.off)) // cannot fail: the chunk was allocated in the arena
		s.slab.borrowed -= k.bytes
	} else {
		s.slab.chunks = append(s.slab.chunks, k.off)
		*s.slab.held(o)--
	}
	s.feed()
}

// queueStarved queues an operation that waits for a chunk of its side.
func (s *Session) queueStarved(id uint32, o *op) { s.todo.starved[o.side()].push(id) }

// side returns the index in todo.starved of sends or of receives.
func (o *op) side() int {
	if o.receives {
		return 1
	}
	return 0
}

// feed gives chunks to the operations that wait for one. Each side has a queue of its own: in a
// single queue a receive could wait behind a send, and two ranks could each wait for what the other
// one's send waits to send.
func (s *Session) feed() {
	for side := range s.todo.starved {
		s.feedSide(side)
	}
}

// feedSide gives chunks to the operations of one side, the oldest first.
func (s *Session) feedSide(side int) {
	for {
		id, ok := s.todo.starved[side].first()
		if !ok {
			return
		}
		o := s.ops.list[id]
		wants := o.moves() && !o.done && o.off < o.want // if false, the operation has ended
		if wants && o.side() != side {                  // the number has been reused by an operation of the other side
			s.todo.starved[side].pop()
			s.queueStarved(id, o)
			continue
		}
		if wants {
			k, ok := s.chunkFor(o)
			if !ok {
				return
			}
			o.spare.push(k)
		}
		s.todo.starved[side].pop()
		s.todo.stage.push(id)
	}
}

// chunkReturned handles a chunk that the engine returns: one that was sent, or one with a part of the
// received message. Chunks return in the order of submission; any other one is a protocol
// violation.
func (s *Session) chunkReturned(id uint32, o *op, d *shm.Descriptor) error {
	if k := &o.chunks.list[0]; o.chunks.n == 0 || k.class != d.Class || k.off != d.Addr() || d.Len() > uint64(k.bytes) {
		return fmt.Errorf("%w: it gave back memory at %d that request %d did not lend", ErrSidecarGone, d.Addr(), d.Req)
	}
	k := o.chunks.pop()
	o.peerWaits = true
	if o.receives && d.Aux() < uint64(len(o.buf)) {
		copy(o.buf[d.Aux():], s.memoryOf(k)[:d.Len()])
	}
	if o.off < o.want {
		o.spare.push(k)
		s.queueStage(id, o)
	} else {
		s.freeChunk(o, k)
	}
	return nil
}
