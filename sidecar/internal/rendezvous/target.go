package rendezvous

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Target is a rendezvous at its receiver.
type Target struct {
	Remote uint64   // the sender's request
	Total  uint64   // bytes of the message
	Want   uint64   // bytes of the message that the receive takes
	Got    uint64   // bytes of Want that have arrived
	Mem    link.Ref // the destination, if it is one range that may be accessed remotely
	Staged bool     // the application supplies memory piece by piece; Mem, if not empty, is lent by it, and may be read into and nothing else

	reading  bool
	wrote    bool // writes were asked for
	writing  bool // a write of the part that was asked for last is in flight
	deferred bool // the link registers the next part in a later turn
	polled   bool
	guard    uint8
	key      link.Key
	keyed    bool
	askedEnd uint64 // end of the part that was asked for last; 0: of each piece that the application has supplied
	partMax  uint64 // size of a part; 0: there is one part
}

// Start begins the transfer of a message whose announcement carried offer: by remote read
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

// startPull asks the sender for the message, with a key for a remote write if the path
// has it.
func (t *Target) startPull(p Path) Step {
	if t.Mem.Len > 0 && !t.Staged && (p.writes() || p.inParts(t.Mem.Len)) {
		t.partMax = p.Caps.RegisterMax
		return t.nextPart()
	}
	return t.askForAll()
}

// askForAll asks for Data frames of all missing bytes. The destination for the frames of
// a staged message must be supplied first.
func (t *Target) askForAll() Step {
	if t.Staged {
		return Step{Do: Supply}
	}
	t.askedEnd, t.writing = t.Want, false
	return t.ask()
}

// ask asks for Data frames, or for a write if there is a key.
func (t *Target) ask() Step {
	return Step{Do: Ask, Pull: wire.PullBody{Offset: t.Got, Bytes: t.askedEnd - t.Got}, More: t.askedEnd < t.Want}
}

// Again continues after a failed write that the sender made by itself (Ready).
func (t *Target) Again() Step { return t.askForAll() }

// Key returns the registration that ends with the receive.
func (t *Target) Key() (link.Key, bool) { return t.key, t.keyed }

// Part ends the part before the one that is to be registered, and returns its key.
func (t *Target) Part() (key link.Key, was bool) {
	was, t.keyed = t.keyed, false
	return t.key, was
}

// Reading reports whether a remote read of the message is in flight.
func (t *Target) Reading() bool { return t.reading }

// whole ends the rendezvous: the whole message has arrived.
func (t *Target) whole() Step {
	t.Got = t.Want
	return Step{Do: Finish}
}
