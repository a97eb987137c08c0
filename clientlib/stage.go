package outrigger

import "github.com/outrigger-hpc/outrigger/api/shm"

// stageDepth is how many chunks of one message are with the engine at most.
const stageDepth = 4

// stage supplies chunks of a staged operation: filled ones of a send, empty
// ones of a matched receive (LAYOUT §5.1).
func (s *Session) stage(id uint32, o *op) error {
	for o.off < o.want && o.pieces < stageDepth {
		class, addr, mem, err := s.chunk(o)
		if err != nil {
			return err
		}
		n := min(len(mem), o.want-o.off)
		if !o.receives {
			copy(mem, o.buf[o.off:o.off+n])
		}
		s.d = shm.Descriptor{Op: shm.OpStage, Req: id, Class: class}
		s.d.SetBody(addr, uint64(n), 0, 0)
		o.off += n
		o.pieces++
		if err := s.push(); err != nil {
			return err
		}
	}
	return nil
}

// chunk finds memory for the next piece. Sends leave half of the slab's chunks
// to receives, whose data is certain to come; past that the arena serves.
func (s *Session) chunk(o *op) (class shm.Class, addr uint64, mem []byte, err error) {
	reserve := 0
	if !o.receives {
		reserve = cap(s.slab.chunks) / 2
	}
	if len(s.slab.chunks) > reserve {
		off, _ := take(&s.slab.chunks)
		return shm.ClassSlab, off, s.slabMem[off : off+chunkBytes], nil
	}
	off, _, err := s.arena.borrow(chunkBytes)
	if err != nil {
		return 0, 0, nil, err
	}
	return shm.ClassArena, uint64(off), s.arenaMem[off : off+chunkBytes], nil
}

// staged takes a chunk back: one that was sent, or one with a part of the
// message in it.
func (s *Session) staged(id uint32, o *op, d *shm.Descriptor) error {
	mem := s.slabMem
	if d.Class == shm.ClassArena {
		mem = s.arenaMem
	}
	if o.receives {
		copy(o.buf[d.Aux():], mem[d.Addr():d.Addr()+d.Len()])
	}
	if d.Class == shm.ClassArena {
		s.arena.giveBack(int(d.Addr()), chunkBytes)
	} else {
		s.slab.chunks = append(s.slab.chunks, d.Addr())
	}
	o.pieces--
	return s.stage(id, o)
}
