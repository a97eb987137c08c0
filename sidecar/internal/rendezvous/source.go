package rendezvous

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Source is a rendezvous at its sender: what the receiver has asked for, as
// [sent, asked) of the message.
type Source struct {
	Total  uint64
	Mem    link.Ref // the whole message, when it lies in one place that may be reached remotely
	Remote uint64   // the receiver's request, once it has asked
	Lent   bool     // Mem is the application's own: it may be read remotely, and nothing else

	sent, asked uint64
	from        uint64   // where the part begins that was asked for to be written
	writes      int      // under way
	failed      bool     // that write has: the part may be asked for again
	ends        []uint64 // ends of the pulls before the last one, while several are open
	key         link.Key
	keyed       bool
}

// Start announces the message. Where the path reads remotely its memory is
// registered first; but nobody can look at the last byte of what is lent.
func (s *Source) Start(p Path) Step {
	keyed := !p.Large(s.Mem.Len)
	if s.Lent { // what its owner has registered costs nothing, however large
		keyed = !p.Polls()
	}
	if p.reads() && s.Mem.Len > 0 && keyed {
		return Step{Do: Register, Mem: s.Mem}
	}
	return Step{Do: Announce}
}

// Registered goes on after Register; last is the last byte of the source where
// the path polls.
func (s *Source) Registered(key link.Key, last uint8) Step {
	s.key, s.keyed = key, true
	return Step{Do: Announce, Offer: wire.RTSBody{Key: key.Key, Addr: key.Addr, Last: last}}
}

// Unregistered goes on after a Register that failed: the receiver asks.
func (s *Source) Unregistered() Step { return Step{Do: Announce} }

// Key is the registration that ends with the message.
func (s *Source) Key() (link.Key, bool) { return s.key, s.keyed }

// Pulled takes the receiver's wish for a part of the message (P§5.3).
func (s *Source) Pulled(p link.Caps, remote uint64, b *wire.PullBody) (Step, error) {
	if s.failed && b.Offset == s.from {
		s.sent, s.asked, s.ends = s.from, s.from, s.ends[:0]
	}
	s.failed = false
	if b.Bytes == 0 || b.Bytes > s.Total || b.Offset > s.Total-b.Bytes || b.Offset != s.asked {
		return Step{}, errPeer("pull of %d bytes at %d of %d, %d asked before", b.Bytes, b.Offset, s.Total, s.asked)
	}
	if s.Open() {
		if len(s.ends) >= pullLimit {
			return Step{}, errPeer("more than %d pulls of a message are open", pullLimit)
		}
		s.ends = append(s.ends, s.asked)
	}
	s.Remote, s.asked = remote, b.Offset+b.Bytes
	if b.Key != 0 && s.Mem.Len > 0 && p.Write && !s.Lent {
		if s.writes >= pullLimit {
			return Step{}, errPeer("more than %d writes of a message are under way", pullLimit)
		}
		s.from = b.Offset
		return Step{Do: Write, Mem: s.Mem.Slice(b.Offset, b.Bytes), Key: link.Key{Key: b.Key, Addr: b.Addr}}, nil
	}
	return Step{Do: Flow}, nil
}

// Writing notes that the link has taken a Write of all that was asked for.
func (s *Source) Writing() {
	s.sent = s.asked
	s.writes++
}

// Ended notes that a Write has ended.
func (s *Source) Ended() { s.writes-- }

// Refused goes on after a Write that the link did not take.
func (s *Source) Refused() Step { return Step{Do: Flow} }

// Again notes that the write of the part at off has failed: the receiver pulls it once
// more, unless it has had it all the same and has asked for the next one.
func (s *Source) Again(off uint64) { s.failed = s.failed || off == s.from }

// Written is the end of a Write, also of a source that has ended meanwhile: it
// needs nothing of its state. The message is complete with a Write that has not
// failed, and a link that notifies has told the receiver. One that failed is told
// and not repeated: it may have been complete all the same, and noticed.
func Written(c link.Caps, err error) Step {
	if err == nil && c.Notify {
		return Step{}
	}
	return Step{Do: Tell, Failed: err != nil}
}

// Open reports that something was asked for and has not been sent.
func (s *Source) Open() bool { return s.sent < s.asked }

// Asked reports that the receiver has asked for something.
func (s *Source) Asked() bool { return s.asked > 0 && !(s.failed && s.from == 0) }

// Sent is how much has been sent.
func (s *Source) Sent() uint64 { return s.sent }

// Next is the next fragment of at most most bytes, n of them at off; 0: there is
// none. A fragment never spans two pulls: the receiver has a place of its own for
// each.
func (s *Source) Next(most uint64) (off, n uint64) {
	for len(s.ends) > 0 && s.ends[0] <= s.sent {
		s.ends = s.ends[:copy(s.ends, s.ends[1:])]
	}
	end := s.asked
	if len(s.ends) > 0 {
		end = s.ends[0]
	}
	return s.sent, min(most, end-s.sent)
}

// Advance notes that n bytes of the next fragment are in a frame.
func (s *Source) Advance(n uint64) { s.sent += n }
