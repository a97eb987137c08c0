package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// stageDepth is how many chunks of one message are with the engine at most.
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

// wantStage notes that an operation can use chunks.
func (s *Session) wantStage(id uint32, o *op) {
	if !o.queued && !o.done && o.off < o.want {
		o.queued = true
		s.todo.stage.push(id)
	}
}

// stage supplies chunks of a staged operation: filled ones of a send, empty
// ones of a matched receive (LAYOUT §5.1). It is called between submissions
// only: chunks of one message must not overtake each other.
func (s *Session) stage(id uint32, o *op) error {
	if o.exposed && !o.asked {
		return nil // the device takes it, or the engine asks
	}
	for !o.done && o.off < o.want && o.chunks.n < stageDepth {
		if !s.hasRoom() {
			s.wantStage(id, o)
			return nil
		}
		k, ok := s.chunkFor(o)
		if !ok {
			if o.chunks.n == 0 && o.moves() {
				o.queued = true
				s.starve(id, o)
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

// moves reports whether the other side waits for chunks of o, so that what o
// is lent is certain to come back.
func (o *op) moves() bool { return o.receives || o.asked }

// chunkFor finds memory for the next piece. An operation keeps the chunks that
// it has until its end, so that every message that moves can go on. One that
// nobody has asked for yet may hold its chunks for ever: it gets them while
// there are plenty, and is asked again when its receive is there (LAYOUT §5.1).
// Such sends leave one chunk of the slab's to sends that move, and whole
// receives leave half of theirs; past that the arena serves.
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
		if o.chunks.n == 0 { // it is needed
			most = len(s.arenaMem)
		}
	}
	if k, ok := s.slab.chunk(o, leaves); ok {
		return k, true
	}
	return s.borrowChunk(size, most)
}

// arenaShare is how much of the arena chunks may take which nobody waits for.
func (s *Session) arenaShare() int { return min(len(s.arenaMem)/arenaShare, arenaMost) }

// borrowChunk takes a chunk of n bytes of the arena, in which there are no more than most
// bytes of chunks then.
func (s *Session) borrowChunk(n, most int) (chunk, bool) {
	if s.slab.borrowed+n > most {
		return chunk{}, false
	}
	off, ok := s.arena.take(n)
	if ok {
		s.slab.borrowed += n
	}
	return chunk{shm.ClassArena, uint64(off), n}, ok
}

// takeWhole gives o memory for all of a message of one piece, which no slot takes, so that
// it goes, or comes, without being asked for. A receive may wait for ever.
func (s *Session) takeWhole(o *op, n int) bool {
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

func (s *Session) memoryOf(k chunk) []byte {
	mem := s.slabMem
	if k.class == shm.ClassArena {
		mem = s.arenaMem
	}
	return mem[k.off : k.off+uint64(k.bytes)]
}

// freeChunk takes a chunk of o back for whichever operation wants one next.
func (s *Session) freeChunk(o *op, k chunk) {
	if k.class == shm.ClassArena {
		_ = s.arena.release(int(k.off)) // it came from there
		s.slab.borrowed -= k.bytes
	} else {
		s.slab.chunks = append(s.slab.chunks, k.off)
		*s.slab.held(o)--
	}
	s.feed()
}

// starve has an operation wait for a chunk of its side.
func (s *Session) starve(id uint32, o *op) { s.todo.starved[o.side()].push(id) }

// side is where an operation waits for a chunk.
func (o *op) side() int {
	if o.receives {
		return 1
	}
	return 0
}

// feed gives chunks to the operations that wait for one. One side does not wait for the
// other's chunks, or two ranks could wait for each other, whose receives wait for what the
// other's sends wait to send.
func (s *Session) feed() {
	for side := range s.todo.starved {
		s.feedSide(side)
	}
}

// feedSide serves the oldest first.
func (s *Session) feedSide(side int) {
	for {
		id, ok := s.todo.starved[side].first()
		if !ok {
			return
		}
		o := s.ops.list[id]
		wants := o.moves() && !o.done && o.off < o.want // else it has ended meanwhile
		if wants && o.side() != side {                  // the number is another operation's now
			s.todo.starved[side].pop()
			s.starve(id, o)
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

// staged takes a chunk back: one that was sent, or one with a part of the
// message in it.
func (s *Session) staged(id uint32, o *op, d *shm.Descriptor) error {
	if k := &o.chunks.list[0]; o.chunks.n == 0 || k.class != d.Class || k.off != d.Addr() || d.Len() > uint64(k.bytes) {
		return fmt.Errorf("%w: it gave back memory at %d that request %d did not lend", ErrSidecarGone, d.Addr(), d.Req)
	}
	k := o.chunks.pop()
	o.asked = true
	if o.receives && d.Aux() < uint64(len(o.buf)) {
		copy(o.buf[d.Aux():], s.memoryOf(k)[:d.Len()])
	}
	if o.off < o.want {
		o.spare.push(k)
		s.wantStage(id, o)
	} else {
		s.freeChunk(o, k)
	}
	return nil
}
