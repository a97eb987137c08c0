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
				s.todo.starved.push(id)
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
// Sends leave half of the slab's chunks to receives, and one of theirs to sends
// that move; past that the arena serves.
func (s *Session) chunkFor(o *op) (chunk, bool) {
	if o.spare.n > 0 {
		return o.spare.pop(), true
	}
	leaves, half := 0, s.slab.chunks.total/2
	switch {
	case o.receives:
	case o.asked:
		leaves = half
	default:
		leaves = half + s.slab.pieceBytes
	}
	needed := o.moves() && o.chunks.n == 0
	for n := s.slab.piece(o.want); ; n = s.slab.pieceBytes {
		k, ok := s.slab.chunk(n, leaves)
		if !ok {
			k, ok = s.borrowChunk(n, needed)
		}
		if ok || n == s.slab.pieceBytes {
			return k, ok
		}
	}
}

// borrowChunk takes a chunk of the arena.
func (s *Session) borrowChunk(n int, needed bool) (chunk, bool) {
	if !needed && s.slab.borrowed+n > min(len(s.arenaMem)/arenaShare, arenaMost) {
		return chunk{}, false
	}
	off, _, err := s.arena.borrow(n)
	if err != nil {
		return chunk{}, false
	}
	s.slab.borrowed += n
	return chunk{shm.ClassArena, uint64(off), n}, true
}

// takeWhole gives o memory for all of a message of up to one piece, so that it goes, or
// comes, without being asked for. A receive may keep it for ever: they have a quarter of
// the slab's.
func (s *Session) takeWhole(o *op, n int) bool {
	if n > s.slab.pieceBytes {
		return false
	}
	n = (n + arenaAlign - 1) &^ (arenaAlign - 1)
	var k chunk
	var ok bool
	switch all := s.slab.chunks.total; {
	case !o.receives:
		k, ok = s.slab.chunk(n, all/2+s.slab.pieceBytes)
	case s.slab.posted+n <= all/4:
		if k, ok = s.slab.chunk(n, 0); ok {
			s.slab.posted += n
		}
	}
	if !ok {
		k, ok = s.borrowChunk(n, false)
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

// freeChunk takes a chunk back for whichever operation wants one next.
func (s *Session) freeChunk(k chunk) {
	if k.class == shm.ClassArena {
		s.arena.giveBack(int(k.off), k.bytes)
		s.slab.borrowed -= k.bytes
	} else {
		_ = s.slab.chunks.release(int(k.off)) // it came from there
		s.slab.taken -= k.bytes
	}
	s.feed()
}

// feed gives chunks to the operations that wait for one, the oldest first.
func (s *Session) feed() {
	for {
		id, ok := s.todo.starved.first()
		if !ok {
			return
		}
		o := s.ops.list[id]
		if o.moves() && !o.done && o.off < o.want { // else it has ended meanwhile
			k, ok := s.chunkFor(o)
			if !ok {
				return
			}
			o.spare.push(k)
		}
		s.todo.starved.pop()
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
	if o.receives && o.buf != nil {
		copy(o.buf[d.Aux():], s.memoryOf(k)[:d.Len()])
	}
	if o.off < o.want {
		o.spare.push(k)
		s.wantStage(id, o)
	} else {
		s.freeChunk(k)
	}
	return nil
}
