package rendezvous

// Get (paper 001 §3.2): two control messages, and no completion is asked for.
//
//	sender                             receiver
//	registers the source
//	  RTS(key, last byte) ──────────►  matches, writes the complement of the last
//	                                   byte to where it will land
//	                                   remote read of the source
//	           ◄═════════════════════  the last byte has changed: all is here
//	complete   ◄───────────────── Fin  complete
//
// This needs a link that places in order. A message of which only a part is
// wanted is read as in GetCQE: its last byte does not come. The link still says
// when the read is over, and holds the memory until then; whichever is seen
// first ends the receive.

// guardRead makes the read show its end by the last byte.
func (t *Target) guardRead(s *Step, last uint8) {
	if t.Want != t.Total {
		return
	}
	t.polled, t.guard = true, ^last
	s.Poll, s.Guard = true, t.guard
}

// Polled goes on when the last byte has come (Come).
func (t *Target) Polled() Step {
	if !t.polled {
		return Step{}
	}
	t.polled = false
	return t.whole()
}
