package rendezvous

// A message that is larger than what is registered at once (link.Caps.RegisterMax): its
// source is not registered for the announcement, and its target not offered. The
// receiver asks for it in parts, each registered when it is asked for, as in RPut:
//
//	sender                             receiver
//	  RTS ──────────────────────────►  matches, registers the first part
//	           ◄───── Pull(key, more)
//	remote write of the part ═══════►
//	  Written, or the link's notice ►  the part is here: its registration ends,
//	                                   registers the next one
//	           ◄─────────── Pull(key)
//	remote write of the last part ══►
//	complete, as in RPut               complete
//
// One key for the whole would have to be registered whole, by a sender that offers it
// and by a receiver that does. A part that cannot be registered comes as Data frames, and
// the next one is tried again.

// inParts reports that a message of n bytes goes by writes of its parts, whatever smaller
// ones go by.
func (p Path) inParts(n uint64) bool { return p.Large(n) && p.Caps.Write && p.Protocol != Stream }

// nextPart registers what is asked for next.
func (t *Target) nextPart() Step {
	part := t.Mem.Slice(t.Got, t.Want-t.Got).Part(t.most)
	t.upto = t.Got + part.Len
	return Step{Do: Register, Mem: part}
}

// Later notes that the link registers the part in a later turn.
func (t *Target) Later() { t.late = true }

// Retry registers the part that waits for that; false: none does.
func (t *Target) Retry() (Step, bool) {
	if !t.late {
		return Step{}, false
	}
	t.late = false
	return Step{Do: Register, Mem: t.Mem.Slice(t.Got, t.upto-t.Got)}, true
}

// came counts a part that is here, and goes on with the next; last is what is done after
// the last one.
func (t *Target) came(last Do) Step {
	if t.Got < t.Want {
		return t.nextPart()
	}
	return Step{Do: last}
}

// lost goes on after a write of the part at off that has failed. One of a part that is
// here all the same is none.
func (t *Target) lost(off uint64) (Step, error) {
	switch {
	case off > t.Got:
		return Step{}, errPeer("a write at %d has failed, have %d of %d", off, t.Got, t.Want)
	case off < t.Got || !t.writing:
		return Step{}, nil
	}
	return t.askForAll(), nil
}
