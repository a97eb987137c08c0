package collective

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// collVectors is the most arrays with a number for each rank that a collective has:
// counts and displacements of both sides of alltoallv.
const collVectors = 4

// With 65,536 ranks an alltoallv has two megabytes of vectors. Config.VectorPiece bounds
// what one turn copies, so that other ranks do not wait for all of it.

// reading is the state of a collective whose vectors are being copied (Room.Reading).
type reading struct {
	block shm.CollBlock
	raw   link.Ref // in the application's memory
	next  int      // index of the next number, over all vectors
}

// readVectors copies the vectors of a collective and begins it. If one piece is not
// enough, Advance continues.
func (r *Room) readVectors(id uint64, st *call, b shm.CollBlock, raw link.Ref) {
	x := reading{block: b, raw: raw}
	if r.readPiece(st, &x) {
		r.begin(id, st, &x.block)
		return
	}
	rest := x
	st.reading = &rest
	st.member.reading = true
	r.queueLocal(id, st)
}

// resumeVectors copies the next piece of the vectors of the collective at the head of
// locals, and begins the collective after the last one. It returns its cost in bytes of the
// turn's budget: to allocate a vector or make a plan takes time for each rank.
func (r *Room) resumeVectors(id uint64, st *call) (cost int64) {
	x, size := st.reading, st.comm.size
	before := (x.next - 1) / size
	whole := r.readPiece(st, x)
	if r.locals.EndTurn(!whole); whole {
		b := x.block
		st.reading, st.queued, st.member.reading = nil, false, false
		r.begin(id, st, &b)
	} else if (x.next-1)/size == before {
		return localLeast
	}
	return max(localLeast, 8*int64(size))
}

// readPiece copies the next piece from the application's memory, of which it reads each
// number once; true: it was the last.
func (r *Room) readPiece(st *call, x *reading) bool {
	size := st.comm.size
	end := min(x.next+r.cfg.VectorPiece, int(x.block.Vectors)*size)
	raw := r.ports.Bytes(x.raw.Slice(uint64(8*x.next), uint64(8*(end-x.next))))
	r.effort += uint64(len(raw))
	for x.next < end {
		v := &st.vectors[x.next/size]
		if *v == nil {
			*v = r.newVector(size)
		}
		at := x.next % size
		to := (*v)[at:min(size, at+end-x.next)]
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		raw = raw[8*len(to):]
		x.next += len(to)
	}
	return x.next == int(x.block.Vectors)*size
}

// vectorsKept bounds the free vectors that are kept for the next collectives.
const vectorsKept = 4 * collVectors

// newVector returns a vector of n numbers, whose values are not defined.
func (r *Room) newVector(n int) []int64 {
	for k := len(r.vectors); k > 0; k = len(r.vectors) {
		v := r.vectors[k-1]
		r.vectors = r.vectors[:k-1]
		if cap(v) >= n {
			return v[:n]
		}
	}
	return make([]int64, n)
}

// releaseVectors keeps the vectors of a collective that has ended for the next ones.
func (r *Room) releaseVectors(st *call) {
	for _, v := range st.vectors {
		if v != nil && len(r.vectors) < vectorsKept {
			r.vectors = append(r.vectors, v)
		}
	}
	st.vectors = [collVectors][]int64{}
}
