package match

// minEntries is the length of a slab when the first entry is added.
const minEntries = 16

// entry is a posted pattern or a parked message. For a message ignore and class have no
// meaning: it is in every class of its side.
type entry struct {
	envelope   Envelope
	ignore     uint64
	age        uint64 // position in the order of arrival, unique in the side
	handle     uint32
	generation uint32
	class      int32 // class of a pattern, or none for the overflow list
	live       bool
}

func (e *entry) pattern() Pattern {
	return Pattern{e.envelope.Context, e.envelope.Source, e.envelope.Tag, e.ignore}
}

// side is one side of a Queue: a slab of entries, the list of all of them by age, and
// their classes.
type side struct {
	entries []entry
	ages    chain // by age while live; next links the free entries
	free    int32
	live    int
	byAge   list
	clock   uint64 // age of the next entry
	birth   uint32 // generation of a new slot; its parity tells the two sides apart

	seeds   seeds
	classes [maxClasses]class
	bound   int // classes[:bound] have a mask
}

func (s *side) init(seeds seeds, birth uint32) {
	s.seeds, s.birth = seeds, birth
	s.free, s.byAge = none, emptyList
}

// add stores an entry as the youngest and returns its index.
func (s *side) add(p Pattern, handle uint32) int32 {
	if s.free == none {
		s.grow()
	}
	i := s.free
	s.free = s.ages[i].next
	e := &s.entries[i]
	e.envelope = Envelope{p.Context, p.Source, p.Tag}
	e.ignore = p.Ignore
	e.handle = handle
	e.live = true
	e.age = s.clock
	s.clock++
	s.ages.push(&s.byAge, i)
	s.live++
	return i
}

// release frees entry i, which the caller has removed from its classes, and returns its
// handle. All its Refs are stale from here on.
func (s *side) release(i int32) uint32 {
	s.ages.cut(&s.byAge, i)
	s.ages[i].next = s.free
	s.free = i
	s.live--
	e := &s.entries[i]
	e.live = false
	e.generation += 2
	if e.generation == 0 {
		e.generation = s.birth // the zero Ref names nothing, even after a wrap
	}
	return e.handle
}

func (s *side) ref(i int32) Ref { return Ref{uint32(i), s.entries[i].generation} }

// find returns the entry that r identifies, if it is still the one for which r was made.
func (s *side) find(r Ref) (int32, bool) {
	if uint64(r.index) >= uint64(len(s.entries)) {
		return none, false
	}
	e := &s.entries[r.index]
	return int32(r.index), e.live && e.generation == r.generation
}

// grow doubles the slab, and the links of the classes with it, so that no other
// operation has to check their length.
func (s *side) grow() {
	old := len(s.entries)
	n := max(minEntries, 2*old)
	s.entries = grown(s.entries, n)
	s.ages = grown(s.ages, n)
	for i := n - 1; i >= old; i-- {
		s.entries[i].generation = s.birth
		s.ages[i].next = s.free
		s.free = int32(i)
	}
	for i := range s.classes[:s.bound] {
		s.classes[i].resize(n)
	}
}

// each calls fn for every entry, oldest first, until fn returns false. The
// next entry is read before fn runs, so fn may remove the one it was given.
func (s *side) each(fn func(handle uint32) bool) {
	for i := s.byAge.head; i != none; {
		next := s.ages[i].next
		if !fn(s.entries[i].handle) {
			return
		}
		i = next
	}
}
