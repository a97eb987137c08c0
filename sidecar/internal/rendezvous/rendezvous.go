// Package rendezvous holds the protocols by which a large message moves once its
// announcement has met a receive: the states of one rendezvous at its sender
// (Source) and at its receiver (Target), without the requests, peers and frames
// around them. What happens comes in as calls; what is to be done about it goes
// out as a Step. Each protocol has a file with its timeline.
//
// The protocols are those of papers 001 and 004, by their names there; P§5 is a
// section of api/wire/PROTOCOL.md.
package rendezvous

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Protocol is how the payload of a large message moves.
type Protocol uint8

// The protocols. Each falls back to Stream where the link cannot do what it
// needs, or refuses.
const (
	Auto   Protocol = iota // GetCQE where the link reads remotely, RPut where it writes remotely, Stream elsewhere
	GetCQE                 // the receiver reads remotely, and its link says when (paper 001 §3)
	Get                    // the same, and the last byte says when; GetCQE where the link places out of order
	Put                    // the receiver asks before the message is announced, and its last byte says when (paper 001 §4); Auto where it cannot
	PutNR                  // the same with a guard that is always zero (paper 001 §4.1)
	RPut                   // the receiver asks, the sender writes remotely (paper 004 §6, MVAPICH)
	Stream                 // the receiver asks, the sender sends Data frames
)

var names = [...]string{"auto", "getcqe", "get", "put", "putnr", "rput", "stream"}

func (p Protocol) String() string { return names[p] }

// Named is the protocol of a name, and Auto of others.
func Named(name string) Protocol { return Protocol(max(slices.Index(names[:], name), 0)) }

// Path is what may be used between two sidecars.
type Path struct {
	Protocol Protocol
	Caps     link.Caps
}

// reads reports that the receiver may read the source remotely.
func (p Path) reads() bool { return p.Caps.Read && p.Protocol != RPut && p.Protocol != Stream }

// Large reports that a message of n bytes is more than is registered at once: it moves
// in parts (parts.go).
func (p Path) Large(n uint64) bool { return p.Caps.RegisterMax > 0 && n > p.Caps.RegisterMax }

// Polls reports that the last byte of memory tells when a read is complete.
func (p Path) Polls() bool { return p.Protocol == Get && p.Caps.Read && p.Caps.InOrder }

// writes reports that the sender may write the target remotely once it was asked.
func (p Path) writes() bool {
	switch p.Protocol {
	case Auto, Put, PutNR, RPut:
		return p.Caps.Write
	}
	return false
}

// Invites reports that receives may be offered before their message is announced.
func (p Path) Invites() bool {
	return (p.Protocol == Put || p.Protocol == PutNR) && p.Caps.Write && (p.Caps.InOrder || p.Caps.Notify)
}

// Do is the kind of a Step.
type Do uint8

// What an end of a rendezvous wants done. Register, Read and Write may fail, and
// are answered at once: with Registered, Started or Writing, or else with
// Unregistered or Refused; the end of a Read or Write comes later.
const (
	Nothing  Do = iota
	Register    // make Mem reachable for the peer
	Read        // from Key into Mem; its last byte is Guard before, where Poll is set
	Write       // Mem to Key, with a notice for the peer's request
	Announce    // RTS, with the body Offer
	Ask         // Pull, with the body Pull
	Supply      // the application has the memory: ask it for some
	Flow        // what was asked for goes as Data frames
	Tell        // Written to the peer: the write is complete, or has Failed
	Invite      // Ready, with the body Ready; the last byte of Mem is Guard before, where Poll is set
	Finish      // the message is here: Fin to the peer, and the receive is complete
	End         // the message is here, and its sender knows: the receive is complete
)

// Step is what is to be done next.
type Step struct {
	Do     Do
	Failed bool // of Tell
	Poll   bool
	More   bool // of Ask: another part follows
	Guard  uint8
	Mem    link.Ref
	Key    link.Key
	Pull   wire.PullBody
	Offer  wire.RTSBody
	Ready  wire.ReadyBody
}

// pullLimit bounds the pulls of one message that are not answered wholly (P§5.3): those
// that wait for Data frames, and those whose writes are under way.
const pullLimit = 256

// errPeer is what a peer has asked for or said that no correct one does.
func errPeer(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{link.ErrProtocol}, args...)...)
}
