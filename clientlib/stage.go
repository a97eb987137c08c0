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
		s.todo.stage = append(s.todo.stage, id)
	}
}

// stage supplies chunks of a staged operation: filled ones of a send, empty
// ones of a matched receive (LAYOUT §5.1). It is called between submissions
// only: chunks of one message must not overtake each other.
func (s *Session) stage(id uint32, o *op) error {
	for !o.done && o.off < o.want && o.chunks.n < stageDepth {
		k, ok := s.chunkFor(o)
		if !ok {
			if o.chunks.n == 0 {
				o.queued = true
				s.todo.starved = append(s.todo.starved, id)
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

// chunkFor finds memory for the next piece. An operation keeps the chunks that
// it has until its end, so that every message that was announced can go on.
// Sends leave half of the slab's chunks to receives, whose data is certain to
// come; past that the arena serves.
func (s *Session) chunkFor(o *op) (chunk, bool) {
	if o.spare.n > 0 {
		return o.spare.pop(), true
	}
	reserve := 0
	if !o.receives {
		reserve = s.slab.reserve
	}
	if len(s.slab.chunks) > reserve {
		off, _ := take(&s.slab.chunks)
		return chunk{shm.ClassSlab, off}, true
	}
	off, _, err := s.arena.borrow(s.slab.chunkBytes)
	return chunk{shm.ClassArena, uint64(off)}, err == nil
}

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
	} else {
		s.slab.chunks = append(s.slab.chunks, k.off)
	}
	s.feed()
}

// feed lets the operations that wait for chunks look again.
func (s *Session) feed() {
	s.todo.stage = append(s.todo.stage, s.todo.starved...)
	s.todo.starved = s.todo.starved[:0]
}

// staged takes a chunk back: one that was sent, or one with a part of the
// message in it.
func (s *Session) staged(id uint32, o *op, d *shm.Descriptor) error {
	if o.chunks.n == 0 || o.chunks.list[0] != (chunk{d.Class, d.Addr()}) {
		return fmt.Errorf("%w: it gave back memory at %d that request %d did not lend", ErrSidecarGone, d.Addr(), d.Req)
	}
	k := o.chunks.pop()
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
