package ether

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// calls returns the system calls that a link has made to send and to receive something.
func calls(l link.Link) (out, in uint64) {
	switch x := l.(type) {
	case *Link:
		s := x.Stats()
		return s.Sends, s.Receives
	case *tcp.Link:
		s := x.Stats()
		return s.Writes, s.Reads
	}
	return 0, 0
}

// pingPong sends a frame of 8 bytes forth and back, and polls each side until it comes.
func pingPong(t testing.TB, p *linktest.Pair, rounds int) {
	t.Helper()
	a, b := linktest.NewSink(p.A.Memory), linktest.NewSink(p.B.Memory)
	for i := range rounds {
		f := []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Length: 8}}}
		send(p.A, f)
		for n := b.Frames(); b.Frames() == n; {
			p.B.Link.Poll(b)
		}
		send(p.B, f)
		for n := a.Frames(); a.Frames() == n; {
			p.A.Link.Poll(a)
		}
	}
}

// send posts frames as the engine does.
func send(s linktest.Side, f []*link.Frame) {
	for len(f) > 0 {
		f = f[s.Link.Post(s.Peer, f):]
	}
	if commit := s.Link.Abilities().Commit; commit != nil {
		commit()
	}
}

// TestSystemCalls checks that small frames make no more system calls than over TCP, one by
// one and many at once.
func TestSystemCalls(t *testing.T) {
	const rounds, batch = 1000, 64
	measure := func(p *linktest.Pair, load func()) (out, in uint64) {
		ao, ai := calls(p.A.Link)
		bo, bi := calls(p.B.Link)
		load()
		co, ci := calls(p.A.Link)
		do, di := calls(p.B.Link)
		return co + do - ao - bo, ci + di - ai - bi
	}
	over := func(name string, p *linktest.Pair) map[string][2]uint64 {
		out, in := measure(p, func() { pingPong(t, p, rounds) })
		bout, bin := measure(p, func() {
			a, b := linktest.NewSink(p.A.Memory), linktest.NewSink(p.B.Memory)
			f := make([]*link.Frame, batch)
			for i := range f {
				f[i] = &link.Frame{Head: wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Length: 8}}
			}
			for range rounds / 10 {
				n := b.Frames()
				send(p.A, f)
				for b.Frames() < n+batch {
					p.B.Link.Poll(b)
				}
				send(p.B, f[:1]) // the answer of a collective, or of the core
				for m := a.Frames(); a.Frames() == m; {
					p.A.Link.Poll(a)
				}
			}
		})
		t.Logf("%s: %d round trips: %d calls to send, %d to receive; %d batches of %d: %d and %d", name, rounds, out, in, rounds/10, batch, bout, bin)
		return map[string][2]uint64{"round trips": {out, in}, "batches": {bout, bin}}
	}
	t.Run("ether", func(t *testing.T) {
		udp := over("ether", pairs(false, nil)(t))
		tcp := over("tcp", socketPair(t))
		for what, u := range udp {
			// Empty polls depend on the time that the other side takes, so that only calls to send
			// are compared. A side that gets no processor for some milliseconds makes the other
			// one acknowledge without a frame.
			if x := tcp[what]; u[0] > x[0]+x[0]/20 {
				t.Errorf("%s: %d calls to send, %d over TCP", what, u[0], x[0])
			}
		}
	})
}

// socketPair returns a pair of links over TCP.
func socketPair(t *testing.T) *linktest.Pair {
	t.Helper()
	am, bm := linktest.NewMemory(), linktest.NewMemory()
	var links [2]*tcp.Link
	for i, m := range []*linktest.Memory{am, bm} {
		var err error
		if links[i], err = tcp.New(m, 1); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = links[i].Close() }) // nothing depends on it
	}
	x, y := loopback(t)
	if err := links[0].Attach(0, x); err != nil {
		t.Fatal(err)
	}
	if err := links[1].Attach(0, y); err != nil {
		t.Fatal(err)
	}
	return &linktest.Pair{A: linktest.Side{Link: links[0], Memory: am}, B: linktest.Side{Link: links[1], Memory: bm}, Pass: func() {}}
}
