package linktest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Sink remembers what a link tells, and finds fault with what it must not tell.
type Sink struct {
	memory  *Memory
	frames  []arrived
	downs   []error
	dones   map[uint64]error
	written []uint64
	told    uint64       // frames up to this number have come at the peer
	onTold  func(uint64) // is told then; nil: nobody
	refuse  bool         // the next frame
	count   int          // keep no frames, only count them
	brief   bool
	faults  []string
	place   []byte // of the payload that is under way
	placing wire.Header
}

// arrived is a frame that came.
type arrived struct {
	head    wire.Header
	payload []byte
}

// NewSink makes a sink.
func NewSink(m *Memory) *Sink { return &Sink{memory: m, dones: map[uint64]error{}} }

func (s *Sink) String() string {
	return fmt.Sprintf("%d frames, downs %v, %d ends, %d notices, faults %v", len(s.frames)+s.count, s.downs, len(s.dones), len(s.written), s.faults)
}

var errRefused = errors.New("refused by the test")

// Deliver takes a whole frame.
func (s *Sink) Deliver(_ link.Peer, h *wire.Header, payload []byte) error {
	switch {
	case s.brief:
		s.count++
		return nil
	case s.refuse:
		return errRefused
	case s.place != nil:
		s.faults = append(s.faults, "a frame came in the middle of a payload")
	case int(h.Length) != len(payload):
		s.faults = append(s.faults, fmt.Sprintf("a payload of %d bytes came with %d", h.Length, len(payload)))
	}
	s.frames = append(s.frames, arrived{*h, bytes.Clone(payload)})
	return nil
}

// Place gives a payload memory of its own.
func (s *Sink) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	if s.refuse {
		return nil, errRefused
	}
	s.placing, s.place = *h, make([]byte, h.Length)
	return s.place, nil
}

// Placed takes the frame whose payload is complete.
func (s *Sink) Placed(link.Peer) error {
	if s.place == nil {
		s.faults = append(s.faults, "a payload is complete that was never placed")
	}
	s.frames = append(s.frames, arrived{s.placing, s.place})
	s.place = nil
	return nil
}

// Done takes the end of an operation.
func (s *Sink) Done(_ link.Peer, token uint64, err error) {
	if _, twice := s.dones[token]; twice {
		s.faults = append(s.faults, fmt.Sprintf("operation %d ended twice", token))
	}
	if len(s.downs) > 0 {
		s.faults = append(s.faults, fmt.Sprintf("operation %d ended after its connection", token))
	}
	s.dones[token] = err
}

// Written takes a notice.
func (s *Sink) Written(_ link.Peer, notify uint64) { s.written = append(s.written, notify) }

// Delivered takes the number of a frame that has come.
func (s *Sink) Delivered(_ link.Peer, seq uint64) {
	if s.onTold != nil && (len(s.downs) > 0 || seq <= s.told) { // other tests count anew on one connection
		s.faults = append(s.faults, fmt.Sprintf("frame %d is delivered after frame %d and %d ends of the connection", seq, s.told, len(s.downs)))
	}
	s.told = seq
	if s.onTold != nil {
		s.onTold(seq)
	}
}

// Down takes the end of a connection.
func (s *Sink) Down(_ link.Peer, err error) {
	s.downs = append(s.downs, err)
	s.place = nil
}

// End is why the connection ended; nil while it has not, or when it has ended
// more than once.
func (s *Sink) End() error {
	if len(s.downs) != 1 {
		return nil
	}
	return s.downs[0]
}
