package ranks

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Session is an attached application: its memory, its request numbers, and the bytes that it
// makes the sidecar keep. Its owner allocates it.
type Session struct {
	id       SessionID
	rank     uint32
	withheld uint8 // flags of completions that the session's client does not support
	slab     link.Ref
	arena    link.Ref
	pieces   pieces
	requests []Request // requests by the client's request number
	open     int       // requests in use
	allowed  *Allowance
	kept     int64 // bytes charged to allowed
	holds    int   // frames, placements and remote operations that refer to the session's memory
	left     bool  // detached or dead: no completions any more
	now      int64 // time of the descriptor that is being submitted
}

// Request is the state of a client's request number.
type Request struct {
	Kind  RequestKind
	ID    uint64 // id of the state of the request, in the table of its kind
	Since int64
}

// RequestKind identifies the room that has a request's state.
type RequestKind uint8

// Kinds of requests.
const (
	RequestFree RequestKind = iota
	RequestSend
	RequestRecv
	RequestProbe
	RequestColl
	RequestOrigin
	RequestPlain // completed without a state of its own
)

// flagsAgreed are the flags of an OpDone that need a feature of the client (L§4.3).
var flagsAgreed = []struct {
	feature uint64
	flag    uint8
}{{shm.FeatureData, shm.FlagData}, {shm.FeatureTypes, shm.FlagTyped}}

// withheld returns the flags that a client with these features does not support.
func withheld(features uint64) (flags uint8) {
	for _, f := range flagsAgreed {
		if features&f.feature == 0 {
			flags |= f.flag
		}
	}
	return flags
}

// ID returns its number.
func (s *Session) ID() SessionID { return s.id }

// Rank returns its rank.
func (s *Session) Rank() uint32 { return s.rank }

// Left reports whether it is detached or dead: it gets no completions any more.
func (s *Session) Left() bool { return s.left }

// Leave ends it for its application. The memory stays until an Unhold of the caller.
func (s *Session) Leave() { s.left = true; s.holds++ }

// Holds returns the number of references to its memory.
func (s *Session) Holds() int { return s.holds }

// Open returns how many of its request numbers are in use.
func (s *Session) Open() int { return s.open }

// Arena returns its whole arena.
func (s *Session) Arena() link.Ref { return s.arena }

// Bound restricts it to the allocated pieces of its arena. Without it, all of it may be named.
func (s *Session) Bound(p Pieces) { s.pieces = pieces{all: p} }

// Taking sets the time of the descriptor whose requests are claimed next.
func (s *Session) Taking(now int64) { s.now = now }

// Requests returns one more than the highest request number that it has used.
func (s *Session) Requests() int { return len(s.requests) }

// Request returns the state of a request number.
func (s *Session) Request(req uint32) Request {
	if int(req) >= len(s.requests) {
		return Request{}
	}
	return s.requests[req]
}

// SetState links a request number to its state. Preconditions: the number is claimed.
func (s *Session) SetState(req uint32, kind RequestKind, id uint64) {
	s.requests[req].Kind, s.requests[req].ID = kind, id
}

// Claim claims a request number, or returns an error if it is in use.
func (s *Session) Claim(req uint32, kind RequestKind, id uint64) error {
	if req >= shm.MaxRequests {
		return fmt.Errorf("request number %d, want below %d", req, shm.MaxRequests)
	}
	if more := int64(req) + 1 - int64(len(s.requests)); more > 0 {
		if err := s.Charge(more * memory.NumberCost); err != nil {
			return err
		}
		s.requests = append(s.requests, make([]Request, more)...)
	}
	if s.requests[req].Kind != RequestFree {
		return fmt.Errorf("request number %d is in use", req)
	}
	if err := s.Charge(memory.RequestCost); err != nil {
		return err
	}
	s.requests[req] = Request{kind, id, s.now}
	s.open++
	return nil
}

// Charge adds bytes that the application makes this sidecar keep, or returns an error if they are too
// many.
func (s *Session) Charge(n int64) error {
	if err := s.Affords(n); err != nil {
		return err
	}
	s.allowed.Add(&s.kept, n)
	return nil
}

// Affords returns an error if the application may not make this sidecar keep n bytes more.
func (s *Session) Affords(n int64) error {
	if !s.allowed.Fits(s.kept, n) {
		return fmt.Errorf("operations that are open take %d bytes for this rank and %d for all ranks of the pod, at most %d and %d: wait for some of them before others begin, or give the sidecar more memory (sidecar.resources)", s.kept, s.allowed.used, s.allowed.share, s.allowed.most)
	}
	return nil
}

// Keep adds bytes that Affords has permitted.
func (s *Session) Keep(n int64) { s.allowed.Add(&s.kept, n) }

// Refund removes n bytes.
func (s *Session) Refund(n int64) { s.allowed.Add(&s.kept, -n) }

// Memory returns the range that a descriptor names, or an error if the application may not name it.
func (s *Session) Memory(class shm.Class, addr, length uint64) (link.Ref, error) {
	var base link.Ref
	switch class {
	case shm.ClassSlab:
		base = s.slab
	case shm.ClassArena:
		base = s.arena
	case shm.ClassNone:
		if length == 0 {
			return link.Ref{}, nil
		}
		fallthrough
	default:
		return link.Ref{}, fmt.Errorf("class %d names no memory", class)
	}
	if length > base.Len || addr > base.Len-length {
		return link.Ref{}, fmt.Errorf("range of %d bytes at %d is outside the %d bytes of class %d", length, addr, base.Len, class)
	}
	if class == shm.ClassArena && !s.pieces.contain(addr, length) {
		return link.Ref{}, fmt.Errorf("range of %d bytes at %d is outside the allocated pieces of the arena", length, addr)
	}
	return base.Slice(addr, length), nil
}
