package coll

// A long allreduce in two levels divides the vector into a share for each rank of a pod, and each
// share into a piece for each pod. A ring of the pod's ranks combines one piece of every share
// after the other, in as many rounds, a window, as the ring has steps; then each rank has the
// piece of its own share. Meanwhile it combines the piece before with the ranks of its index in the
// other pods, in a ring in which each pod starts with another piece. The pieces are spread in the
// same way. As few bytes leave a pod as by leaders. There are not more rounds than in a ring of all
// ranks, in each of which a rank sends one piece to its pod, and one rank of each pod or two to
// another pod.

// sharing is the part of a rank in an allreduce in shares.
type sharing struct {
	vector
	pieces        partition // those of share 0, then those of share 1, ...
	local, column *group    // the ranks of the pod, and those with the same index in all pods
	steps         int       // of the ring of a pod, which are the rounds of a window
	turn          int       // the step of a window in which this rank exchanges with other pods
	delay         int       // windows from the ring of a pod to that between pods
}

func (l *Plan) sharing() sharing {
	s := sharing{vector: l.outVector(), local: &l.local, column: &l.column, steps: l.local.size - 1}
	s.pieces = even(s.acc, s.count, s.elem, l.p.Size)
	s.turn = s.local.rank % s.steps
	if s.steps == 1 && s.count%int64(l.p.Size) != 0 {
		s.delay = 1 // see spent
	}
	return s
}

// rounds returns the rounds of both halves.
func (s *sharing) rounds() (combine, spread int) {
	return (s.column.size + s.delay) * s.steps, s.column.size * s.steps
}

func (s *sharing) add(w *round, i int) {
	if n, _ := s.rounds(); i < n {
		s.combine(w, i/s.steps, i%s.steps)
	} else {
		s.spread(w, (i-n)/s.steps, (i-n)%s.steps)
	}
}

// piece returns the number in its share of the piece that the pod combines in a window.
func (s *sharing) piece(window int) int { return s.column.wrap(s.column.rank - window) }

// at returns the bytes of a piece of a share.
func (s *sharing) at(share, piece int) (off, bytes int64) {
	i := share*s.column.size + piece
	return s.pieces.off(i), s.pieces.len(i)
}

func (s *sharing) combine(w *round, window, step int) {
	g, c := s.local, s.column
	before := window - 1 - s.delay // the window of the piece that goes to the next pod
	exchanges := before >= 0 && before < c.size-1
	first := s.turn < s.steps-1 // the other pods' operand comes before the pod's
	if window < c.size {
		out := g.wrap(g.rank - 1 - step)
		in := g.wrap(out - 1)
		off, bytes := s.at(out, s.piece(window))
		w.send(g, g.wrap(g.rank+1), s.own(step == 0).plus(off), bytes)
		off, bytes = s.at(in, s.piece(window))
		w.merge(g, g.wrap(g.rank-1), &s.vector, off, bytes, in != g.rank || !exchanges || !first, true)
	}
	if exchanges && step == s.turn {
		off, bytes := s.at(g.rank, s.piece(before))
		w.send(c, c.wrap(c.rank+1), s.acc.plus(off), bytes)
		v := s.vector
		v.tmp = s.spent(before)
		off, bytes = s.at(g.rank, s.piece(before+1))
		w.merge(c, c.wrap(c.rank-1), &v, off, bytes, first, true)
	}
}

// spent returns memory of the result for an operand of another pod: that of a piece that this rank
// has sent to its pod. Only the last piece of all may be shorter than others. If there is no other
// spent piece, which is in the first window of two ranks, the exchange is delayed by a window.
func (s *sharing) spent(window int) position {
	share, piece := 0, s.piece(window)
	if s.local.rank == 0 {
		share = 1
	}
	if s.delay > 0 && piece == s.column.size-1 {
		piece = s.piece(window + 1)
	}
	off, _ := s.at(share, piece)
	return s.acc.plus(off)
}

func (s *sharing) spread(w *round, window, step int) {
	g, c := s.local, s.column
	have, next := c.wrap(c.rank+1-window), c.wrap(c.rank-window)
	out := g.wrap(g.rank - step)
	in := g.wrap(out - 1)
	off, bytes := s.at(out, have)
	w.send(g, g.wrap(g.rank+1), s.acc.plus(off), bytes)
	off, bytes = s.at(in, have)
	w.recv(g, g.wrap(g.rank-1), s.acc.plus(off), bytes)
	if window < c.size-1 && step == s.turn {
		off, bytes = s.at(g.rank, have)
		w.send(c, c.wrap(c.rank+1), s.acc.plus(off), bytes)
		off, bytes = s.at(g.rank, next)
		w.recv(c, c.wrap(c.rank-1), s.acc.plus(off), bytes)
	}
}
