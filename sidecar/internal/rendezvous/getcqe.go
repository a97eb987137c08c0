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
// A read that is refused or fails is followed by Pull and Data frames: the data
// is still with its sender, and frames are sent again as often as needed.

// startRead reads the whole message.
func (t *Target) startRead(p Path, o *wire.RTSBody) Step {
	s := Step{Do: Read, Mem: t.Mem, Key: link.Key{Key: o.Key, Addr: o.Addr}}
	if p.Polls() && !t.Staged {
		t.guardRead(&s, o.Last)
	}
	return s
}

// Started notes that the link has taken the read.
func (t *Target) Started() { t.reading = true }

// Refused goes on after a Read that the link did not take.
func (t *Target) Refused(p Path) Step { return t.startPull(p) }

// Read is the end of the read.
func (t *Target) Read(err error) Step {
	t.reading, t.polled = false, false
	if err != nil {
		return t.askForAll()
	}
	return t.whole()
}
