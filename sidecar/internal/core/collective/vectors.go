package collective

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
func (r *Room) takeVectors(id uint64, st *call, b shm.CollBlock, raw link.Ref) {
	x := reading{block: b, raw: raw}
	if r.takeSome(st, &x) {
		r.beginColl(id, st, &x.block)
		return
	}
	rest := x
	st.reading = &rest
	st.member.reading = true
	r.queueLocal(id, st)
}

// takeTurn goes on with the vectors of the collective whose turn it is, and begins
// with it when all are here. It returns what that counts of the turn's budget: room
// for a vector, and a plan, are looks at a number a rank.
func (r *Room) takeTurn(id uint64, st *call) (cost int64) {
	x, size := st.reading, st.comm.size
	before := (x.next - 1) / size
	whole := r.takeSome(st, x)
	if r.locals.Pass(!whole); whole {
		b := x.block
		st.reading, st.queued, st.member.reading = nil, false, false
		r.beginColl(id, st, &b)
	} else if (x.next-1)/size == before {
		return localLeast
	}
	return max(localLeast, 8*int64(size))
}

// takeSome copies the next piece, straight from the application's memory: each number
// is read once. true: it was the last.
func (r *Room) takeSome(st *call, x *reading) bool {
	size := st.comm.size
	end := min(x.next+r.cfg.VectorPiece, int(x.block.Vectors)*size)
	raw := r.ports.Bytes(x.raw.Slice(uint64(8*x.next), uint64(8*(end-x.next))))
	r.effort += uint64(len(raw))
	for x.next < end {
		v := &st.vectors[x.next/size]
		if *v == nil {
			*v = r.takeVector(size)
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

// vectorsKept bounds the vectors that wait for the next collective.
const vectorsKept = 4 * collVectors

// takeVector returns a vector of n numbers that are to be written.
func (r *Room) takeVector(n int) []int64 {
	for k := len(r.vectors); k > 0; k = len(r.vectors) {
		v := r.vectors[k-1]
		r.vectors = r.vectors[:k-1]
		if cap(v) >= n {
			return v[:n]
		}
	}
	return make([]int64, n)
}

// spareVectors takes the vectors of a collective that has ended back.
func (r *Room) spareVectors(st *call) {
	for _, v := range st.vectors {
		if v != nil && len(r.vectors) < vectorsKept {
			r.vectors = append(r.vectors, v)
		}
	}
	st.vectors = [collVectors][]int64{}
}
