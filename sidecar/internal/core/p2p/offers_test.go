package p2p

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestRefusalsAreForgotten: in a long job offers are refused now and then, each with another
// envelope, as collectives make them. The peer violates no bound by that.
func TestRefusalsAreForgotten(t *testing.T) {
	rm := alone(t)
	p := &rm.peers[1]
	offer := func(n, seq uint64) error {
		body := wire.ReadyBody{Key: 1, Seq: seq, Poll: true}
		h := wire.Header{Type: wire.Ready, Seq: n, Src: 1, Tag: n << 32, A: n, B: 1 << 20}
		b := make([]byte, wire.ReadyBytes)
		h.Length = uint32(body.Encode(b))
		if err := rm.Frame(1, &h, b); err != nil {
			return err
		}
		rm.channel.Flush(int64(n), all{})
		return nil
	}
	for n := uint64(1); n <= 10_000; n++ {
		seq := p.Out().Last() // the peer knows all refusals but this one
		if p.offers != nil {
			p.offers.lost = seq + 1 // many messages were sent since
		}
		if err := offer(n, seq); err != nil {
			t.Fatalf("offer %d: %v", n, err)
		}
	}
	if n := p.offers.refused.Len(); n > 1 {
		t.Errorf("%d refusals are remembered, want the last one", n)
	}
	var err error
	for n := uint64(10_001); err == nil && n < 20_000; n++ { // a peer that receives no refusal
		err = offer(n, 0)
	}
	if !errors.Is(err, link.ErrProtocol) {
		t.Errorf("refused offers without end: %v", err)
	}
}
