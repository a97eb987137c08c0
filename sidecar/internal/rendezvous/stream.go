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
// Memory that the application supplies in pieces is asked for with a Pull for
// each: Source.Pulled keeps the parts, and no fragment spans two of them.

// Accept judges a fragment of n bytes at off, before it is placed.
func (t *Target) Accept(off, n uint64) error {
	if n == 0 || off != t.Got || n > t.Want-t.Got || t.upto > 0 && n > t.upto-t.Got {
		return errPeer("data of %d bytes at %d, have %d of %d", n, off, t.Got, t.Want)
	}
	return nil
}

// Placed counts n bytes that are in their place.
func (t *Target) Placed(n uint64) Step {
	if t.Got += n; t.Got < t.Want && t.Got != t.upto {
		return Step{}
	}
	t.writing = false // it came in frames
	return t.came(Finish)
}
