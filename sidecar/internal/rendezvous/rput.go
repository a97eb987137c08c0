package rendezvous

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// RPut (paper 004 §6, the CH3 design; RTS, CTS and FIN of paper 001): three control
// messages; a link that notifies carries the last one.
//
//	sender                             receiver
//	  RTS ──────────────────────────►  matches, registers the target
//	           ◄─────────── Pull(key)
//	remote write of the target ═════►
//	its link says that it is complete:
//	complete
//	  Written, or the link's notice ►  complete
//
// If a write is refused, its bytes are sent in Data frames. If a write fails, the sender reports
// that to the receiver, which pulls once more, without a key; or, if the bytes have arrived
// nevertheless, it sends Fin.

// Registered continues after Register.
func (t *Target) Registered(key link.Key) Step {
	t.key, t.keyed, t.wrote, t.writing, t.deferred = key, true, true, true, false
	s := t.ask()
	s.Pull.Key, s.Pull.Addr = key.Key, key.Addr
	return s
}

// Unregistered continues after a Register that failed.
func (t *Target) Unregistered() Step {
	t.deferred = false
	return t.ask()
}

// Written handles the completion of the sender's write of the part that was asked for
// last.
func (t *Target) Written() (Step, error) {
	switch {
	case !t.wrote:
		return Step{}, errPeer("notice of a write that was not asked for")
	case !t.writing: // it is sent in frames by now
		return Step{}, nil
	}
	t.Got, t.writing = t.askedEnd, false
	return t.arrived(End), nil
}

// Unwritten handles the failure of the sender's write of the part at off.
func (t *Target) Unwritten(off uint64) (Step, error) {
	if !t.wrote {
		return Step{}, errPeer("the failure of a write that was not asked for")
	}
	return t.lost(off)
}
