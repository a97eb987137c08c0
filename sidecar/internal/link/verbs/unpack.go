package verbs

import (
	"errors"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// incoming splits the messages of one connection into frames.
type incoming struct {
	dst  []byte // rest of the destination of a payload in flight
	head wire.Header
	out  *outgoing // outgoing frames of the same connection; nil: none wait
}

// errCut means that a message ends within a frame that must be whole.
var errCut = errors.New("a message ends within a frame that fits a message")

// receive hands over the frames of a message. It stops early when the sink ends the
// connection, which sets ended.
func (in *incoming) receive(peer link.Peer, b []byte, sink link.Sink, ended *bool) error {
	for len(b) > 0 && !*ended {
		var err error
		if len(in.dst) > 0 {
			b, err = in.more(peer, b, sink)
		} else {
			b, err = in.frame(peer, b, sink)
		}
		if err != nil {
			return link.Protocol(err)
		}
	}
	return nil
}

// more continues a payload in flight.
func (in *incoming) more(peer link.Peer, b []byte, sink link.Sink) ([]byte, error) {
	n := copy(in.dst, b)
	in.dst = in.dst[n:]
	if len(in.dst) > 0 {
		return nil, nil
	}
	in.dst = nil
	return b[n:], sink.Placed(peer)
}

// frame handles the frame at the beginning of b, as far as b has it.
func (in *incoming) frame(peer link.Peer, b []byte, sink link.Sink) ([]byte, error) {
	if len(b) < wire.HeaderBytes {
		return nil, errCut
	}
	h := &in.head
	if err := h.Decode((*[wire.HeaderBytes]byte)(b)); err != nil {
		return nil, err
	}
	if in.out != nil {
		if err := link.CheckAck(h.Ack, in.out.oldest()); err != nil {
			return nil, err
		}
	}
	n, body := int(h.Length), b[wire.HeaderBytes:]
	if n <= len(body) {
		return body[n:], sink.Deliver(peer, h, body[:n])
	}
	if n <= wholeMax {
		return nil, errCut
	}
	dst, err := sink.Place(peer, h)
	if err != nil {
		return nil, err
	}
	in.dst = dst
	if len(body) == 0 {
		return nil, nil
	}
	return in.more(peer, body, sink)
}
