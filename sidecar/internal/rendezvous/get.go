package rendezvous

// Get (paper 001 §3.2): two control messages, and no completion is asked for.
//
//	sender                             receiver
//	registers the source
//	  RTS(key, last byte) ──────────►  matches, writes the complement of the last
//	                                   byte to its destination
//	                                   remote read of the source
//	           ◄═════════════════════  the last byte has changed: complete
//	complete   ◄───────────────── Fin  complete
//
// This needs a link that places in order. A message of which only a part is wanted is
// read as in GetCQE, since its last byte does not arrive. The link reports the end of the
// read as well, and retains the memory until then; the first of the two ends the receive.

// guardRead makes the last byte show the end of the read.
func (t *Target) guardRead(s *Step, last uint8) {
	if t.Want != t.Total {
		return
	}
	t.polled, t.guard = true, ^last
	s.Poll, s.Guard = true, t.guard
}

// Polled continues when the last byte has arrived (Arrived).
func (t *Target) Polled() Step {
	if !t.polled {
		return Step{}
	}
	t.polled = false
	return t.whole()
}
