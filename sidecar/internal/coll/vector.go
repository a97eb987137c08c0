package coll

// vector is what a reduction works on.
type vector struct {
	src position // what this rank contributes; never written unless it is acc
	acc position // where the result grows
	tmp position // for one operand under way, as long as the longest that comes
	// count elements of elem bytes.
	count, elem int64
}

func (v *vector) bytes() int64 { return v.count * v.elem }

// inPlace reports whether the contribution is where the result grows.
func (v *vector) inPlace() bool { return v.src == v.acc }

// own returns where this rank's operand is. It is fresh until the first merge.
func (v *vector) own(fresh bool) position {
	if fresh {
		return v.src
	}
	return v.acc
}

// merge receives an operand for the bytes from off on and combines it with
// the own one in acc. Lower says that the operand received is the left one.
// A fresh own operand is combined straight from src, which saves a copy.
func (w *round) merge(g *group, peer int, v *vector, off, bytes int64, fresh, lower bool) {
	if fresh && !v.inPlace() {
		w.recv(g, peer, v.acc.plus(off), bytes)
		w.fold(v.acc.plus(off), v.src.plus(off), bytes, lower)
		return
	}
	w.recv(g, peer, v.tmp, bytes)
	w.fold(v.acc.plus(off), v.tmp, bytes, !lower)
}
