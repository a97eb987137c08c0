package rendezvous

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// GetCQE (paper 001 §3.1): two control messages.
//
//	sender                             receiver
//	registers the source
//	  RTS(key) ─────────────────────►  matches
//	                                   remote read of the source
//	           ◄═════════════════════  its link says that it is complete
//	complete   ◄───────────────── Fin  complete
//
// A read that is refused or fails is followed by Pull and Data frames: the sender still
// has the data, and frames are retransmitted.

// startRead reads the whole message.
func (t *Target) startRead(p Path, o *wire.RTSBody) Step {
	s := Step{Do: Read, Mem: t.Mem, Key: link.Key{Key: o.Key, Addr: o.Addr}}
	if p.Polls() && !t.Staged {
		t.guardRead(&s, o.Last)
	}
	return s
}

// Started records that the link has accepted the read.
func (t *Target) Started() { t.reading = true }

// Refused continues after a Read that the link did not accept.
func (t *Target) Refused(p Path) Step { return t.startPull(p) }

// Read handles the end of the read.
func (t *Target) Read(err error) Step {
	t.reading, t.polled = false, false
	if err != nil {
		return t.askForAll()
	}
	return t.whole()
}
