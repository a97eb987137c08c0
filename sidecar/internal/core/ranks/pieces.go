package ranks

// Pieces are the allocated parts of an arena (L§2.3). They become more, and never fewer.
type Pieces interface {
	// Around is the piece in which the byte at off is; two zeros: there is none.
	Around(off uint64) (from, to uint64)
}

// pieces is what a session knows of them: the last one that a descriptor was in, so that
// the others need not be asked for each message.
type pieces struct {
	from, to uint64
	all      Pieces // nil: there are no others
}

// hold reports whether a range is in one piece.
// Preconditions: it is within the arena.
func (p *pieces) hold(off, length uint64) bool {
	if off >= p.from && off+length <= p.to || length == 0 {
		return true
	}
	if p.all == nil {
		return false
	}
	from, to := p.all.Around(off)
	if from == to || off+length > to {
		return false
	}
	p.from, p.to = from, to
	return true
}
