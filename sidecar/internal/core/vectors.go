package core

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// collVectors is how many arrays of a number a rank a collective has at most.
const collVectors = 4

// With 65,536 ranks an alltoallv has two megabytes of vectors, and whoever is beside
// its rank does not wait until all are taken: Config.VectorPiece.

// reading is a collective whose vectors are being taken. Its rank is not heard
// meanwhile (Held): what it says next is for after this.
type reading struct {
	block shm.CollBlock
	raw   link.Ref // where the application has them
	next  int      // the number to take, of all
}

// takeVectors copies the vectors of a collective, at once when there are few, and
// begins with it then.
func (c *Core) takeVectors(s *session, id uint64, st *collective, b shm.CollBlock, raw link.Ref) {
	r := reading{block: b, raw: raw}
	if c.takeSome(st, &r) {
		c.beginColl(s, id, st, &r.block)
		return
	}
	rest := r
	st.reading = &rest
	s.reading = true
	c.queueLocal(id, st)
}

// takeTurn goes on with the vectors of the collective whose turn it is, and begins
// with it when all are here. It returns what that counts of the turn's budget: room
// for a vector, and a plan, are looks at a number a rank.
func (c *Core) takeTurn(id uint64, st *collective) (cost int64) {
	r, size := st.reading, st.comm.size
	before := (r.next - 1) / size
	whole := c.takeSome(st, r)
	if c.locals.Pass(!whole); whole {
		s, b := c.sessions[st.owner.session], r.block
		st.reading, st.queued, s.reading = nil, false, false
		c.beginColl(s, id, st, &b)
	} else if (r.next-1)/size == before {
		return localLeast
	}
	return max(localLeast, 8*int64(size))
}

// takeSome copies the next piece, straight from the application's memory: each number
// is read once. true: it was the last.
func (c *Core) takeSome(st *collective, r *reading) bool {
	size := st.comm.size
	end := min(r.next+c.cfg.VectorPiece, int(r.block.Vectors)*size)
	raw := c.ports.Bytes(r.raw.Slice(uint64(8*r.next), uint64(8*(end-r.next))))
	c.effort += uint64(len(raw))
	for r.next < end {
		v := &st.vectors[r.next/size]
		if *v == nil {
			*v = c.takeVector(size)
		}
		at := r.next % size
		to := (*v)[at:min(size, at+end-r.next)]
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		raw = raw[8*len(to):]
		r.next += len(to)
	}
	return r.next == int(r.block.Vectors)*size
}

// vectorsKept bounds the vectors that wait for the next collective.
const vectorsKept = 4 * collVectors

// takeVector returns a vector of n numbers that are to be written.
func (c *Core) takeVector(n int) []int64 {
	for k := len(c.vectors); k > 0; k = len(c.vectors) {
		v := c.vectors[k-1]
		c.vectors = c.vectors[:k-1]
		if cap(v) >= n {
			return v[:n]
		}
	}
	return make([]int64, n)
}

// spareVectors takes the vectors of a collective that has ended back.
func (c *Core) spareVectors(st *collective) {
	for _, v := range st.vectors {
		if v != nil && len(c.vectors) < vectorsKept {
			c.vectors = append(c.vectors, v)
		}
	}
	st.vectors = [collVectors][]int64{}
}
