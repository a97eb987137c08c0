package coll

// scanSize returns the rounds and the scratch memory of a scan. The first operand is combined
// in Out and needs no scratch memory.
func (l *Plan) scanSize() (rounds int, scratch int64) {
	if l.p.Rank > 1 || l.p.Rank == 1 && l.p.InPlace {
		scratch = l.bytes
	}
	return levels(l.p.Size), scratch
}

// scan adds round i of an inclusive prefix (Hillis and Steele 1986): a rank sends its
// combination of the 2^i operands up to its own to the rank 2^i ahead, whose operands follow
// them. Rank order is kept.
func (l *Plan) scan(w *round, i int) {
	g, v := &l.all, l.outVector()
	fresh := i == 0 || g.rank == 0 // rank 0 receives nothing, so that its operand stays fresh
	if to := g.rank + 1<<i; to < g.size {
		w.send(g, to, v.own(fresh), v.bytes())
	}
	if from := g.rank - 1<<i; from >= 0 {
		w.merge(g, from, &v, 0, v.bytes(), fresh, true)
	}
	if i == 0 && g.rank == 0 {
		w.copy(v.acc, v.src, v.bytes())
	}
}
