package rendezvous

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// RPut (paper 004 §6, the CH3 design; RTS, CTS and FIN of paper 001): three control
// messages, of which the link carries the last where it notifies.
//
//	sender                             receiver
//	  RTS ──────────────────────────►  matches, registers the target
//	           ◄─────────── Pull(key)
//	remote write of the target ═════►
//	its link says that it is complete:
//	complete
//	  Written, or the link's notice ►  complete
//
// A write that is refused goes as Data frames. One that fails is told, and the
// receiver pulls once more, without a key, or has got it all the same and says Fin.

// Registered goes on after Register.
func (t *Target) Registered(key link.Key) Step {
	t.key, t.keyed, t.wrote, t.writing, t.late = key, true, true, true, false
	s := t.ask()
	s.Pull.Key, s.Pull.Addr = key.Key, key.Addr
	return s
}

// Unregistered goes on after a Register that failed.
func (t *Target) Unregistered() Step {
	t.late = false
	return t.ask()
}

// Written is told that the sender's write of what was asked for last is complete in
// memory.
func (t *Target) Written() (Step, error) {
	switch {
	case !t.wrote:
		return Step{}, errPeer("notice of a write that was not asked for")
	case !t.writing: // it comes in frames by now
		return Step{}, nil
	}
	t.Got, t.writing = t.upto, false
	return t.came(End), nil
}

// Unwritten is told that the sender's write of the part at off has failed.
func (t *Target) Unwritten(off uint64) (Step, error) {
	if !t.wrote {
		return Step{}, errPeer("the failure of a write that was not asked for")
	}
	return t.lost(off)
}
