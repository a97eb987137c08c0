package coll

// vector is the memory of a reduction.
type vector struct {
	src position // position of this rank's contribution; never written unless it is acc
	acc position // position of the accumulator
	tmp position // room for one operand that is being received, as long as the longest
	// count elements of elem bytes.
	count, elem int64
}

func (v *vector) bytes() int64 { return v.count * v.elem }

// inPlace reports whether the contribution is in the accumulator.
func (v *vector) inPlace() bool { return v.src == v.acc }

// own returns the position of this rank's operand. It is fresh until the first merge.
func (v *vector) own(fresh bool) position {
	if fresh {
		return v.src
	}
	return v.acc
}

// merge receives an operand for the bytes from off on and combines it with the own one in acc.
// lower says that the received operand is the left one. A fresh own operand is combined
// directly from src, which saves a copy.
func (w *round) merge(g *group, peer int, v *vector, off, bytes int64, fresh, lower bool) {
	if fresh && !v.inPlace() {
		w.recv(g, peer, v.acc.plus(off), bytes)
		w.fold(v.acc.plus(off), v.src.plus(off), bytes, lower)
		return
	}
	w.recv(g, peer, v.tmp, bytes)
	w.fold(v.acc.plus(off), v.tmp, bytes, !lower)
}
