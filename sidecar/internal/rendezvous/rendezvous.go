// Package rendezvous holds the protocols by which a large message moves once its
// announcement has matched a receive: the states of one rendezvous at its sender (Source)
// and at its receiver (Target), without the requests, peers and frames around them.
// Events come in as method calls; each returns the next Step. Package core/p2p calls them
// and executes the steps. Each protocol has a file with its timeline.
//
// The protocols are those of papers 001 and 004, by their names there; P§5 is a section
// of api/wire/PROTOCOL.md.
package rendezvous

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Protocol is how the payload of a large message moves.
type Protocol uint8

// The protocols. Each falls back to Stream if the link lacks an ability or refuses.
const (
	Auto   Protocol = iota // GetCQE if the link reads remotely, RPut if it writes remotely, otherwise Stream
	GetCQE                 // the receiver reads remotely, and its link reports completion (paper 001 §3)
	Get                    // the same, but the last byte shows completion; GetCQE if the link places out of order
	Put                    // the receiver asks before the message is announced, and its last byte shows completion (paper 001 §4); Auto if it cannot
	PutNR                  // the same with a guard that is always zero (paper 001 §4.1)
	RPut                   // the receiver asks, the sender writes remotely (paper 004 §6, MVAPICH)
	Stream                 // the receiver asks, the sender sends Data frames
)

var names = [...]string{"auto", "getcqe", "get", "put", "putnr", "rput", "stream"}

func (p Protocol) String() string { return names[p] }

// Named returns the protocol with a name, or Auto.
func Named(name string) Protocol { return Protocol(max(slices.Index(names[:], name), 0)) }

// Path is the protocol and the link's abilities between two sidecars.
type Path struct {
	Protocol Protocol
	Caps     link.Caps
}

// reads reports whether the receiver may read the source remotely.
func (p Path) reads() bool { return p.Caps.Read && p.Protocol != RPut && p.Protocol != Stream }

// Large reports whether a message of n bytes is larger than what may be registered at
// once: it moves in parts (parts.go).
func (p Path) Large(n uint64) bool { return p.Caps.RegisterMax > 0 && n > p.Caps.RegisterMax }

// Polls reports whether the last byte of memory shows that a read is complete.
func (p Path) Polls() bool { return p.Protocol == Get && p.Caps.Read && p.Caps.InOrder }

// writes reports whether the sender may write the target remotely when asked.
func (p Path) writes() bool {
	switch p.Protocol {
	case Auto, Put, PutNR, RPut:
		return p.Caps.Write
	}
	return false
}

// Invites reports whether receives may be offered before their message is announced.
func (p Path) Invites() bool {
	return (p.Protocol == Put || p.Protocol == PutNR) && p.Caps.Write && (p.Caps.InOrder || p.Caps.Notify)
}

// Do is the kind of a Step.
type Do uint8

// The steps. Register, Read and Write may fail; the caller answers at once with
// Registered, Started or Writing, or with Unregistered or Refused. The end of a Read or
// Write comes later.
const (
	Nothing  Do = iota
	Register    // make Mem accessible to the peer
	Read        // read Key into Mem; if Poll is set, its last byte is Guard before
	Write       // write Mem to Key, with a notification for the peer's request
	Announce    // send RTS, with the body Offer
	Ask         // send Pull, with the body Pull
	Supply      // ask the application for memory
	Flow        // send the pulled bytes in Data frames
	Notify      // send Written to the peer: the write is complete, or has Failed
	Invite      // send Ready, with the body Ready; if Poll is set, the last byte of Mem is Guard before
	Finish      // the message has arrived: send Fin to the peer, and complete the receive
	End         // the message has arrived, and its sender knows: complete the receive
)

// Step is the next action of the caller.
type Step struct {
	Do     Do
	Failed bool // of Notify
	Poll   bool
	More   bool // of Ask: another part follows
	Guard  uint8
	Mem    link.Ref
	Key    link.Key
	Pull   wire.PullBody
	Offer  wire.RTSBody
	Ready  wire.ReadyBody
}

// pullLimit bounds the pulls of one message that are not answered completely (P§5.3):
// those that wait for Data frames, and those whose writes are in flight.
const pullLimit = 256

// errPeer returns an error for a request or message that no correct peer sends.
func errPeer(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{link.ErrProtocol}, args...)...)
}
