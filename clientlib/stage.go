package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// stageDepth is how many chunks of one message are with the engine at most.
const stageDepth = 4

// chunk is a piece of shared memory that carries a part of a staged message.
type chunk struct {
	class shm.Class
	off   uint64
}

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
	reserve := 0
	switch {
	case o.receives:
	case o.asked:
		reserve = s.slab.reserve
	default:
		reserve = s.slab.reserve + 1
	}
	if len(s.slab.chunks) > reserve {
		off, _ := take(&s.slab.chunks)
		return chunk{shm.ClassSlab, off}, true
	}
	if needed := o.moves() && o.chunks.n == 0; !needed && s.slab.borrowed >= len(s.arenaMem)/chunkShare {
		return chunk{}, false
	}
	off, _, err := s.arena.borrow(s.slab.chunkBytes)
	if err != nil {
		return chunk{}, false
	}
	s.slab.borrowed += s.slab.chunkBytes
	return chunk{shm.ClassArena, uint64(off)}, true
}

// chunkShare is the part of the arena that chunks take which nobody waits for.
const chunkShare = 4

func (s *Session) memoryOf(k chunk) []byte {
	mem := s.slabMem
	if k.class == shm.ClassArena {
		mem = s.arenaMem
	}
	return mem[k.off : k.off+uint64(s.slab.chunkBytes)]
}

// freeChunk takes a chunk back for whichever operation wants one next.
func (s *Session) freeChunk(k chunk) {
	if k.class == shm.ClassArena {
		s.arena.giveBack(int(k.off), s.slab.chunkBytes)
		s.slab.borrowed -= s.slab.chunkBytes
	} else {
		s.slab.chunks = append(s.slab.chunks, k.off)
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
	if o.chunks.n == 0 || o.chunks.list[0] != (chunk{d.Class, d.Addr()}) {
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
