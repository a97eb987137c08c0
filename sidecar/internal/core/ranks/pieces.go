package ranks

// Pieces are the allocated parts of an arena (L§2.3). Pieces are added, and never removed.
type Pieces interface {
	// Around returns the piece that contains the byte at off, or two zeros.
	Around(off uint64) (from, to uint64)
}

// pieces caches the last piece that a descriptor named, so that most messages need no lookup.
type pieces struct {
	from, to uint64
	all      Pieces // nil: there are no others
}

// contain reports whether a range is in one piece.
// Preconditions: it is within the arena.
func (p *pieces) contain(off, length uint64) bool {
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
