package rendezvous

// A message that is larger than what may be registered at once (link.Caps.RegisterMax):
// its source is not registered for the announcement, and its target is not offered. The
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
// One key for the whole message would require a registration of all of it, by a sender or
// receiver that offers it. A part that cannot be registered is sent in Data frames, and
// the next part is tried again.

// inParts reports whether a message of n bytes moves by writes of its parts, whatever
// protocol smaller messages use.
func (p Path) inParts(n uint64) bool { return p.Large(n) && p.Caps.Write && p.Protocol != Stream }

// nextPart registers the part that is asked for next.
func (t *Target) nextPart() Step {
	part := t.Mem.Slice(t.Got, t.Want-t.Got).Part(t.partMax)
	t.askedEnd = t.Got + part.Len
	return Step{Do: Register, Mem: part}
}

// Later records that the link registers the part in a later turn.
func (t *Target) Later() { t.deferred = true }

// Retry registers the part that waits for that; false: none does.
func (t *Target) Retry() (Step, bool) {
	if !t.deferred {
		return Step{}, false
	}
	t.deferred = false
	return Step{Do: Register, Mem: t.Mem.Slice(t.Got, t.askedEnd-t.Got)}, true
}

// arrived counts a part that has arrived, and continues with the next; last is the step
// after the last part.
func (t *Target) arrived(last Do) Step {
	if t.Got < t.Want {
		return t.nextPart()
	}
	return Step{Do: last}
}

// lost continues after a failed write of the part at off. If the part has arrived
// nevertheless, the failure is ignored.
func (t *Target) lost(off uint64) (Step, error) {
	switch {
	case off > t.Got:
		return Step{}, errPeer("a write at %d has failed, have %d of %d", off, t.Got, t.Want)
	case off < t.Got || !t.writing:
		return Step{}, nil
	}
	return t.askForAll(), nil
}
