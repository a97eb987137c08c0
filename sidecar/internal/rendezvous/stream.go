package rendezvous

// Stream: two control messages, and the payload in frames.
//
//	sender                             receiver
//	  RTS ──────────────────────────►  matches
//	           ◄──────── Pull(0, all)
//	  Data ─────────────────────────►  into its place
//	  Data ─────────────────────────►  …
//	complete   ◄───────────────── Fin  complete
//
// If the application supplies memory in pieces, each piece is asked for with a Pull:
// Source.Pulled keeps their ends, and no fragment spans two of them.

// Accept checks a fragment of n bytes at off, before it is placed.
func (t *Target) Accept(off, n uint64) error {
	if n == 0 || off != t.Got || n > t.Want-t.Got || t.askedEnd > 0 && n > t.askedEnd-t.Got {
		return errPeer("data of %d bytes at %d, have %d of %d", n, off, t.Got, t.Want)
	}
	return nil
}

// Placed counts n bytes that are in their destination.
func (t *Target) Placed(n uint64) Step {
	if t.Got += n; t.Got < t.Want && t.Got != t.askedEnd {
		return Step{}
	}
	t.writing = false // it was sent in frames
	return t.arrived(Finish)
}
