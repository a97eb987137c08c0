package verbs

import (
	"errors"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// incoming takes the messages of one connection apart.
type incoming struct {
	dst  []byte // rest of a payload that is under way
	head wire.Header
	out  *outgoing // of the same connection; nil: none of its frames wait
}

// errCut says that a message ends in the middle of what has to be whole.
var errCut = errors.New("a message ends within a frame that fits a message")

// take hands over the frames of a message. It stops early when the sink has
// ended the connection, which sets ended.
func (in *incoming) take(peer link.Peer, b []byte, sink link.Sink, ended *bool) error {
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

// more goes on with a payload that is under way.
func (in *incoming) more(peer link.Peer, b []byte, sink link.Sink) ([]byte, error) {
	n := copy(in.dst, b)
	in.dst = in.dst[n:]
	if len(in.dst) > 0 {
		return nil, nil
	}
	in.dst = nil
	return b[n:], sink.Placed(peer)
}

// frame takes the frame that b begins with, as far as it is there.
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
