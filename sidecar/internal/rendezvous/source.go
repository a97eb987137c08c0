package rendezvous

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Source is a rendezvous at its sender. The receiver has asked for the bytes [sent,
// asked) of the message.
type Source struct {
	Total  uint64
	Mem    link.Ref // the whole message, if it is in one range that may be accessed remotely
	Remote uint64   // the receiver's request, once it has asked
	Lent   bool     // Mem is registered by the application: it may be read remotely, and nothing else

	sent, asked uint64
	from        uint64   // offset of the part that is to be written
	writes      int      // in flight
	failed      bool     // the last write has failed: the part may be asked for again
	ends        []uint64 // ends of the pulls before the last one, while several are open
	key         link.Key
	keyed       bool
}

// Start announces the message. If the path reads remotely, its memory is registered
// first; but no side can load the last byte of lent memory.
func (s *Source) Start(p Path) Step {
	keyed := !p.Large(s.Mem.Len)
	if s.Lent { // the owner's registration costs nothing, however large
		keyed = !p.Polls()
	}
	if p.reads() && s.Mem.Len > 0 && keyed {
		return Step{Do: Register, Mem: s.Mem}
	}
	return Step{Do: Announce}
}

// Registered continues after Register; last is the last byte of the source if the path
// polls.
func (s *Source) Registered(key link.Key, last uint8) Step {
	s.key, s.keyed = key, true
	return Step{Do: Announce, Offer: wire.RTSBody{Key: key.Key, Addr: key.Addr, Last: last}}
}

// Unregistered continues after a Register that failed: the receiver will pull.
func (s *Source) Unregistered() Step { return Step{Do: Announce} }

// Key returns the registration that ends with the message.
func (s *Source) Key() (link.Key, bool) { return s.key, s.keyed }

// Pulled handles the receiver's request for a part of the message (P§5.3).
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

// Writing records that the link has accepted a Write of everything that was asked for.
func (s *Source) Writing() {
	s.sent = s.asked
	s.writes++
}

// Ended records that a Write has ended.
func (s *Source) Ended() { s.writes-- }

// Refused continues after a Write that the link did not accept.
func (s *Source) Refused() Step { return Step{Do: Flow} }

// WriteFailed records that the write of the part at off has failed: the receiver pulls it
// once more, unless it has the part nevertheless and has asked for the next one.
func (s *Source) WriteFailed(off uint64) { s.failed = s.failed || off == s.from }

// Written handles the end of a Write, even if its source has ended meanwhile: it needs no
// state of it. The message is complete when a Write succeeds, and a link that notifies
// has notified the receiver. A failure is reported to the receiver and the write is not
// repeated: it may have been complete nevertheless, and notified.
func Written(c link.Caps, err error) Step {
	if err == nil && c.Notify {
		return Step{}
	}
	return Step{Do: Notify, Failed: err != nil}
}

// Open reports whether bytes were asked for that have not been sent.
func (s *Source) Open() bool { return s.sent < s.asked }

// Asked reports whether the receiver has asked for any bytes.
func (s *Source) Asked() bool { return s.asked > 0 && !(s.failed && s.from == 0) }

// Sent returns the number of bytes sent.
func (s *Source) Sent() uint64 { return s.sent }

// Next returns the next fragment of at most most bytes: n bytes at off; n is 0 if there
// is none. A fragment never spans two pulls: the receiver has a destination of its own
// for each.
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

// Advance records that n bytes of the next fragment are in a frame.
func (s *Source) Advance(n uint64) { s.sent += n }
