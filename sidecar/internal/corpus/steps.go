package corpus

import (
	"encoding/binary"
	"errors"
	"hash"
	"hash/fnv"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// steps are the hashes of actions, one for each input, and of texts.
type steps struct {
	list  []uint16
	step  hash.Hash64 // step of the present input
	texts hash.Hash64
	some  bool // the input has had actions
	log   func(action string, values ...uint64)
}

func newSteps() *steps { return &steps{step: fnv.New64a(), texts: fnv.New64a()} }

// act adds an action.
func (s *steps) act(what string, values ...uint64) {
	s.some = true
	if s.log != nil {
		s.log(what, values...)
	}
	_, _ = s.step.Write([]byte(what)) // a hash never fails
	for _, v := range values {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		_, _ = s.step.Write(b[:]) // as above
	}
}

func (s *steps) text(t string) { _, _ = s.texts.Write([]byte(t + "\n")) }

// end ends the step of an input.
func (s *steps) end() {
	s.list = append(s.list, uint16(s.step.Sum64()))
	s.drop()
}

// drop drops the step of an input that is left out.
func (s *steps) drop() {
	s.step.Reset()
	s.some = false
}

// returned adds the result of an input.
func (s *steps) returned(err error) {
	switch {
	case err == nil:
	case errors.Is(err, link.ErrProtocol):
		s.act("breach")
		s.text(err.Error())
	default:
		s.act("error")
		s.text(err.Error())
	}
}

func (s *steps) frame(peer link.Peer, f *link.Frame) {
	h := &f.Head
	values := []uint64{
		uint64(peer), uint64(h.Type), uint64(h.Flags), uint64(h.Elem), h.Seq, h.Ack, uint64(h.Credit), uint64(h.Context),
		uint64(h.Src), uint64(h.Dst), h.Tag, h.A, h.B, uint64(f.Payload.Region), f.Payload.Off,
	}
	body := f.Inline[:min(int(h.Length), len(f.Inline))]
	switch {
	case h.Type == wire.Abort: // its payload is a text
		s.act("frame", values[:13]...)
		return
	case h.Type == wire.Eager, f.Payload.Region != 0: // data
		body = nil
	}
	s.act("frame", append(values, uint64(h.Length))...)
	_, _ = s.step.Write(body) // a hash never fails
}

func (s *steps) completion(id core.SessionID, d *shm.Descriptor) {
	values := []uint64{
		uint64(id), uint64(d.Op), uint64(d.Flags), uint64(d.Class), uint64(d.InlineLen), uint64(d.Req), uint64(d.Peer), uint64(d.Context), uint64(d.Status), d.Tag,
	}
	if d.Class != shm.ClassInline { // otherwise it is data
		values = append(values, d.Addr(), d.Len(), d.Aux(), d.Aux2())
	}
	s.act("done", values...)
}

func (s *steps) failure(id core.SessionID, text string) {
	s.act("failed", uint64(id))
	s.text(text)
}

func (s *steps) memory(what string, peer link.Peer, ref link.Ref) {
	s.act(what, uint64(peer), uint64(ref.Region), ref.Off, ref.Len)
}

func (s *steps) access(what string, peer link.Peer, token uint64, ref link.Ref, key link.Key, notify uint64) {
	s.act(what, uint64(peer), token, uint64(ref.Region), ref.Off, ref.Len, key.Key, key.Addr, notify)
}

func (s *steps) cast(peer link.Peer, data []byte, dst link.Key, notify uint64) {
	s.act("cast", uint64(peer), dst.Key, dst.Addr, notify)
	_, _ = s.step.Write(data) // a hash never fails
}

// offer adds frames that are posted to a link. How many the link accepts is not part of the
// actions.
func (s *steps) offer(peer link.Peer, frames []*link.Frame) {
	for _, f := range frames {
		s.frame(peer, f)
	}
}
