package match

// oracle is a simple Queue: two slices in order of age, searched from the front. The real one
// is compared with it.
type oracle struct {
	posted []oracleEntry
	parked []oracleEntry
}

type oracleEntry struct {
	pattern  Pattern  // pattern of a posted entry
	envelope Envelope // envelope of a parked entry
	handle   uint32
	ref      Ref // returned by the real queue for it
}

// removeFirst removes the first entry that ok accepts.
func removeFirst(s *[]oracleEntry, ok func(oracleEntry) bool) (uint32, bool) {
	for i, e := range *s {
		if ok(e) {
			*s = append((*s)[:i:i], (*s)[i+1:]...)
			return e.handle, true
		}
	}
	return 0, false
}

func (o *oracle) arrive(e Envelope) (uint32, bool) {
	return removeFirst(&o.posted, func(x oracleEntry) bool { return slowMatches(x.pattern, e) })
}

func (o *oracle) take(p Pattern) (uint32, bool) {
	return removeFirst(&o.parked, func(x oracleEntry) bool { return slowMatches(p, x.envelope) })
}

func (o *oracle) peek(p Pattern) (uint32, bool) {
	for _, x := range o.parked {
		if slowMatches(p, x.envelope) {
			return x.handle, true
		}
	}
	return 0, false
}

func (o *oracle) cancel(r Ref) bool {
	_, ok := removeFirst(&o.posted, func(x oracleEntry) bool { return x.ref == r })
	return ok
}

func (o *oracle) drop(r Ref) bool {
	_, ok := removeFirst(&o.parked, func(x oracleEntry) bool { return x.ref == r })
	return ok
}

// slowMatches compares a pattern with an envelope bit by bit, as Pattern.Matches must.
func slowMatches(p Pattern, e Envelope) bool {
	if p.Context != e.Context {
		return false
	}
	if p.Source != AnySource && p.Source != e.Source {
		return false
	}
	for bit := range 64 {
		if p.Ignore>>bit&1 == 0 && p.Tag>>bit&1 != e.Tag>>bit&1 {
			return false
		}
	}
	return true
}

func handlesOf(s []oracleEntry) []uint32 {
	h := []uint32{}
	for _, e := range s {
		h = append(h, e.handle)
	}
	return h
}
