package channel

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestAcknowledgedAfterAFailedWrite: a write to the ring has failed, and all frames that may
// not have arrived will be posted again. The peer may still acknowledge frames that were
// posted before, because its frames are delivered before the end of the connection is
// reported.
func TestAcknowledgedAfterAFailedWrite(t *testing.T) {
	r, _ := connected(t, 2)
	p := r.Peer(1)
	for range 5 {
		r.Emit(p, wire.Matched)
	}
	for r.Flush(2, &gate{open: 100}) {
	}
	r.Emit(p, wire.Matched) // this frame is not posted
	posted := p.out.Next()
	r.rewind(p) // as after a failed write
	if p.out.Next() == posted {
		t.Fatal("nothing is posted again")
	}
	acknowledge := func(seq uint64) error {
		return r.Deliver(3, 1, &wire.Header{Type: wire.Ack, Ack: seq, Credit: p.credit.Granted()}, nil)
	}
	if err := acknowledge(posted + 1); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("%v for an acknowledgement of what was never posted", err)
	}
	if err := acknowledge(posted); err != nil {
		t.Error(err)
	}
	if p.out.Base() != posted || p.out.Next() != posted {
		t.Errorf("acknowledged up to %d, posted up to %d, want %d", p.out.Base(), p.out.Next(), posted)
	}
}

// TestDroppedAnswersAreRefunded: a peer dies with answers that it has not acknowledged, some of
// which were not even posted. None is charged to it any more, since its pod may come back.
func TestDroppedAnswersAreRefunded(t *testing.T) {
	r, _ := connected(t, 2)
	p := r.Peer(1)
	for range 5 {
		r.Answer(p, wire.Retracted)
	}
	r.Flush(2, &gate{open: 2})
	r.PeerLost(3, 1, errors.New("started again"))
	if a := p.Account(); a.bytes != 0 || a.answers != 0 || a.allowed.Used() != 0 {
		t.Errorf("%d bytes are charged to a dead peer for %d answers, %d to all", a.bytes, a.answers, a.allowed.Used())
	}
}
