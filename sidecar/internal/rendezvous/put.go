package rendezvous

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Put and PutNR (paper 001 §4): one control message, of the receiver.
//
//	sender                             receiver
//	                                   a receive of one source is posted:
//	                                   registers the target, and writes the guard
//	                                   to its last byte
//	           ◄───── Ready(key, guard)
//	sends a message of its size:
//	remote write of the target ═════►
//	its link says that it is complete:
//	complete                           the last byte has changed: complete
//	  Written, if the message's last
//	  byte is the guard ────────────►  complete
//
// PutNR's guard is zero, with which many messages end; Put draws a random one, so that
// one message in 256 needs the Written. A link that notifies, but does not place in
// order, notifies the receiver. P§5.4 says which message uses an offer, and what happens
// to an offer without a message; package core/p2p implements it.

// Invite offers the target; guard is a random byte.
func (t *Target) Invite(p Path, guard uint8) Step {
	if p.Protocol == PutNR {
		guard = 0
	}
	t.guard, t.polled = guard, p.Caps.InOrder
	return Step{Do: Register, Mem: t.Mem}
}

// Ready continues after Register; seq is the last frame that has arrived. A target that
// could not be registered is not offered.
func (t *Target) Ready(key link.Key, seq uint64) Step {
	t.key, t.keyed = key, true
	return Step{
		Do: Invite, Mem: t.Mem, Poll: t.polled, Guard: t.guard,
		Ready: wire.ReadyBody{Key: key.Key, Addr: key.Addr, Seq: seq, Guard: t.guard, Poll: t.polled},
	}
}

// Arrived reports whether the last byte of a polled target says that the message has
// arrived.
func (t *Target) Arrived(last uint8) bool { return t.polled && last != t.guard }

// Polling reports whether the last byte shows the end.
func (t *Target) Polling() bool { return t.polled }

// Put begins to write the whole message to an offered target, that of the receiver's
// request remote.
func (s *Source) Put(remote uint64, b *wire.ReadyBody) Step {
	s.Remote, s.asked = remote, s.Total
	return Step{Do: Write, Mem: s.Mem, Key: link.Key{Key: b.Key, Addr: b.Addr}, Poll: b.Poll}
}

// Collides reports whether the receiver cannot detect the end of a message whose last
// byte is last.
func Collides(b *wire.ReadyBody, last uint8) bool { return b.Poll && last == b.Guard }

// PutDone handles the end of such a write, even if its source has ended meanwhile.
func PutDone(collides bool, err error) Step {
	if err == nil && !collides {
		return Step{}
	}
	return Step{Do: Notify, Failed: err != nil}
}
