package tcp_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// TestBlockedPeerCostsNoWrites checks that the link does not try to write while the peer
// does not read, and that its descriptor becomes ready only when there is room again.
func TestBlockedPeerCostsNoWrites(t *testing.T) {
	m := linktest.NewMemory()
	l := newLink(t, m)
	defer l.Close()
	x, y := loopback(t)
	defer unix.Close(y)
	attach(t, l, x)
	sink := linktest.NewSink(m)
	f := &link.Frame{Head: wire.Header{Type: wire.Heartbeat, Length: link.InlineMax}}
	post := func() int { return l.Post(0, []*link.Frame{f}) }
	ready := func(wait time.Duration) bool {
		p := []unix.PollFd{{Fd: int32(l.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(wait.Milliseconds()))
		for errors.Is(err, unix.EINTR) { // a signal of Go's preemption
			n, err = unix.Poll(p, int(wait.Milliseconds()))
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	// The kernel moves the data that it has accepted: there is room again until the
	// peer's side is full, too.
	for post() > 0 || ready(50*time.Millisecond) {
		l.Poll(sink)
	}
	writes, taken := l.Stats().Writes, 0
	for range 100 {
		taken += post()
		l.Poll(sink)
	}
	if n := int(l.Stats().Writes - writes); n > 3+2*taken {
		t.Errorf("%d attempts to write to a peer that reads nothing, in 100 turns; %d frames were accepted", n, taken)
	}
	if taken == 0 && ready(0) {
		t.Error("the descriptor is ready although nothing can be written")
	}
	b := make([]byte, 1<<20)
	for range 1000 { // accepted frames may fill the first bytes of room
		if _, err := unix.Read(y, b); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		if ready(10*time.Millisecond) && l.Poll(sink) > 0 && post() > 0 {
			return
		}
	}
	t.Error("there is room again, and the link does not use it")
}

// TestQuietConnectionsAreCheap checks that only connections that have data to read or to
// write have buffers.
func TestQuietConnectionsAreCheap(t *testing.T) {
	const peers = 64
	m := linktest.NewMemory()
	l, err := tcp.New(m, peers)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for peer := range link.Peer(peers) {
		x, y := socketPair(t)
		defer unix.Close(y)
		if err := l.Attach(peer, x); err != nil {
			t.Fatal(err)
		}
		f := &link.Frame{Head: wire.Header{Type: wire.Heartbeat}}
		if l.Post(peer, []*link.Frame{f}) != 1 {
			t.Fatal("a new connection accepts no frame")
		}
		l.Poll(linktest.NewSink(m))
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / peers; each > 16<<10 {
		t.Errorf("a quiet connection costs %d bytes, want at most 16 KiB", each)
	}
}
