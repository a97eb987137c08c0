package linktest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// testLifetime checks that memory whose registration has ended is not touched any more,
// however far the operations that use it had progressed, and that these end with an
// error. The memory is removed at once, as that of a rank that leaves.
func testLifetime(t *testing.T, p *Pair) {
	a, b, ok := p.remotes(func(c link.Caps) bool { return c.Read })
	if !ok {
		return
	}
	const n = 2 << 20 // several times what a link moves in a poll
	mine, theirs := p.A.Memory.fill(n, 1), p.B.Memory.fill(n, 2)
	cut := 0
	for round := range 16 {
		write := round%2 == 1 && a.Caps().Write
		sa, sb := p.sinks()
		k := register(t, b, theirs)
		var err error
		if write {
			err = a.Write(p.A.Peer, 1, mine, k, 0)
		} else {
			err = a.Read(p.A.Peer, 1, mine, k)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range round {
			p.step(sa, sb)
		}
		b.Deregister(k)
		before := bytes.Clone(p.B.Memory.Bytes(theirs))
		p.B.Memory.detach(theirs)
		p.until(t, sa, sb, "the end of an operation without a registration", func() bool { return len(sa.dones) > 0 })
		if err := sa.dones[1]; err != nil {
			cut++
			if !errors.Is(err, link.ErrKey) && !errors.Is(err, link.ErrBroken) {
				t.Fatalf("an operation whose registration had ended: got %v, want ErrKey or ErrBroken", err)
			}
		}
		if !bytes.Equal(p.B.Memory.reattach(theirs), before) {
			t.Fatalf("round %d: memory changed after its registration had ended", round)
		}
		if len(sa.downs) > 0 && p.Join != nil {
			p.Join(t)
		}
	}
	if cut == 0 {
		t.Fatal("no registration ended before its operation: the test shows nothing")
	}
}

// testEarlyAck makes a peer acknowledge frames that the link has accepted and not written. The
// core may reuse their memory then: so either the acknowledgement is not delivered, and the
// connection ends, or the link does not need that memory any more.
func testEarlyAck(t *testing.T, p *Pair) {
	if p.A.Link == p.B.Link {
		return // a link to itself sends no false acknowledgement
	}
	const size, most = 16 << 10, 4096
	sa, sb := p.sinks()
	var frames []*link.Frame
	var sent [][]byte
	for len(frames) < most {
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(len(frames) + 1), Length: size}, Payload: p.A.Memory.fill(size, uint64(len(frames)))}
		if p.A.Link.Post(p.A.Peer, []*link.Frame{f}) == 0 {
			break
		}
		frames = append(frames, f)
		sent = append(sent, bytes.Clone(p.A.Memory.Bytes(f.Payload)))
	}
	lie := &link.Frame{Head: wire.Header{Type: wire.Ack, Ack: uint64(len(frames))}}
	if p.B.Link.Post(p.B.Peer, []*link.Frame{lie}) != 1 {
		t.Fatal("the link does not accept the first frame of a peer")
	}
	since := time.Now()
	for idle := 0; len(sa.frames)+len(sa.downs) == 0; idle++ {
		if idle >= idleMax && time.Since(since) > idleTime {
			t.Fatal("the acknowledgement does not arrive")
		}
		p.Pass()
		p.A.Link.Poll(sa)
		if idle%1000 == 999 { // it may send only then, and reads a part
			p.B.Link.Poll(sb)
		}
	}
	if len(sa.downs) > 0 {
		if !errors.Is(sa.downs[0], link.ErrProtocol) || len(sa.frames) > 0 {
			t.Fatalf("a peer acknowledges frames that are not written: %v", sa)
		}
		return
	}
	for _, f := range frames {
		clear(p.A.Memory.Bytes(f.Payload))
	}
	p.until(t, sa, sb, "the last frame", func() bool { return len(sb.frames) == len(frames) })
	for i := range sent {
		if !bytes.Equal(sb.frames[i].payload, sent[i]) {
			t.Fatalf("frame %d of %d was sent from memory that the link had released", i+1, len(frames))
		}
	}
}
