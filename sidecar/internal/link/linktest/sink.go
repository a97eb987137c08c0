package linktest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Sink records the events of a link, and notes forbidden ones as faults.
type Sink struct {
	memory      *Memory
	frames      []arrived
	downs       []error
	dones       map[uint64]error
	written     []uint64
	delivered   uint64       // frames up to this number are reported as delivered
	onDelivered func(uint64) // called for each report; may be nil
	refuse      bool         // refuse the next frame
	count       int          // number of frames that are not recorded (brief)
	brief       bool         // count frames instead of recording them
	faults      []string
	dst         []byte // destination of the payload in flight
	placing     wire.Header
}

// arrived is a frame that arrived.
type arrived struct {
	head    wire.Header
	payload []byte
}

// NewSink returns a Sink that reads payloads into m.
func NewSink(m *Memory) *Sink { return &Sink{memory: m, dones: map[uint64]error{}} }

func (s *Sink) String() string {
	return fmt.Sprintf("%d frames, downs %v, %d ends, %d notifications, faults %v", len(s.frames)+s.count, s.downs, len(s.dones), len(s.written), s.faults)
}

var errRefused = errors.New("refused by the test")

// Deliver records a whole frame.
func (s *Sink) Deliver(_ link.Peer, h *wire.Header, payload []byte) error {
	switch {
	case s.brief:
		s.count++
		return nil
	case s.refuse:
		return errRefused
	case s.dst != nil:
		s.faults = append(s.faults, "a frame arrived in the middle of a payload")
	case int(h.Length) != len(payload):
		s.faults = append(s.faults, fmt.Sprintf("a payload of %d bytes arrived with %d", h.Length, len(payload)))
	}
	s.frames = append(s.frames, arrived{*h, bytes.Clone(payload)})
	return nil
}

// Ends returns the ends of operations by their tokens.
func (s *Sink) Ends() map[uint64]error { return s.dones }

// Faults returns the forbidden events.
func (s *Sink) Faults() []string { return s.faults }

// Frames returns the number of frames that have arrived.
func (s *Sink) Frames() int { return len(s.frames) + s.count }

// Place returns new memory for a payload.
func (s *Sink) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	if s.refuse {
		return nil, errRefused
	}
	s.placing, s.dst = *h, make([]byte, h.Length)
	return s.dst, nil
}

// Placed records the frame whose payload is complete.
func (s *Sink) Placed(link.Peer) error {
	if s.dst == nil {
		s.faults = append(s.faults, "Placed without Place")
	}
	s.frames = append(s.frames, arrived{s.placing, s.dst})
	s.dst = nil
	return nil
}

// Done records the end of an operation.
func (s *Sink) Done(_ link.Peer, token uint64, err error) {
	if _, twice := s.dones[token]; twice {
		s.faults = append(s.faults, fmt.Sprintf("operation %d ended twice", token))
	}
	if len(s.downs) > 0 {
		s.faults = append(s.faults, fmt.Sprintf("operation %d ended after its connection", token))
	}
	s.dones[token] = err
}

// Written records a notification.
func (s *Sink) Written(_ link.Peer, notify uint64) { s.written = append(s.written, notify) }

// Delivered records the number of a frame that is delivered.
func (s *Sink) Delivered(_ link.Peer, seq uint64) {
	if s.onDelivered != nil && (len(s.downs) > 0 || seq <= s.delivered) { // other tests restart the numbers on one connection
		s.faults = append(s.faults, fmt.Sprintf("frame %d is delivered after frame %d and %d ends of the connection", seq, s.delivered, len(s.downs)))
	}
	s.delivered = seq
	if s.onDelivered != nil {
		s.onDelivered(seq)
	}
}

// Down records the end of a connection.
func (s *Sink) Down(_ link.Peer, err error) {
	s.downs = append(s.downs, err)
	s.dst = nil
}

// DownError returns the error of Down; nil before it, or after a second Down.
func (s *Sink) DownError() error {
	if len(s.downs) != 1 {
		return nil
	}
	return s.downs[0]
}
