package rendezvous

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Target is a rendezvous at its receiver.
type Target struct {
	Remote uint64   // the sender's request
	Total  uint64   // bytes of the message
	Want   uint64   // bytes of the message that are wanted
	Got    uint64   // of them, those that have come
	Mem    link.Ref // where they go, when it is one place that may be reached remotely
	Staged bool     // the application supplies memory piece by piece: Mem, if there is one, it has lent, and it may be read into and nothing else

	reading bool
	wrote   bool // writes were asked for
	writing bool // one, of what was asked for last, is under way
	late    bool // the link registers what is asked for next in a later turn
	polled  bool
	guard   uint8
	key     link.Key
	keyed   bool
	upto    uint64 // end of what was asked for last; 0: of each piece that the application has supplied
	most    uint64 // of a part; 0: there is one
}

// Start goes for a message whose announcement carried the offer: by remote read
// (getcqe.go, get.go), by asking for a remote write (rput.go) or for Data frames
// (stream.go).
func (t *Target) Start(p Path, offer *wire.RTSBody) Step {
	switch {
	case t.Want == 0:
		return Step{Do: Finish}
	case t.Mem.Len > 0 && offer.Key != 0 && p.reads():
		return t.startRead(p, offer)
	case t.Staged:
		return Step{Do: Supply}
	}
	return t.startPull(p)
}

// startPull asks the sender for the message, with the place for a remote write
// where the path has it.
func (t *Target) startPull(p Path) Step {
	if t.Mem.Len > 0 && !t.Staged && (p.writes() || p.inParts(t.Mem.Len)) {
		t.most = p.Caps.RegisterMax
		return t.nextPart()
	}
	return t.askForAll()
}

// askForAll asks for Data frames of all that is missing. The place for the frames of a
// staged message has to be supplied first.
func (t *Target) askForAll() Step {
	if t.Staged {
		return Step{Do: Supply}
	}
	t.upto, t.writing = t.Want, false
	return t.ask()
}

// ask asks for Data frames, or for a write if there is a key.
func (t *Target) ask() Step {
	return Step{Do: Ask, Pull: wire.PullBody{Offset: t.Got, Bytes: t.upto - t.Got}, More: t.upto < t.Want}
}

// Again goes on after a write that has failed and that was not asked for.
func (t *Target) Again() Step { return t.askForAll() }

// Key is the registration that ends with the receive.
func (t *Target) Key() (link.Key, bool) { return t.key, t.keyed }

// Part ends the part before the one that is to be registered, and gives its key.
func (t *Target) Part() (key link.Key, was bool) {
	was, t.keyed = t.keyed, false
	return t.key, was
}

// Reading reports that a remote read of the message is under way.
func (t *Target) Reading() bool { return t.reading }

// whole ends the rendezvous: all that is wanted is here.
func (t *Target) whole() Step {
	t.Got = t.Want
	return Step{Do: Finish}
}
