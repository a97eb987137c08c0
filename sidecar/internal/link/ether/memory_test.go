package ether

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestMemoryIsCounted compares what the link allocates with what the formula of the sidecar's
// limit has for it: buffers of system calls, connections that answer as many asks as they may,
// and as many pulls as there may be.
func TestMemoryIsCounted(t *testing.T) {
	const peers = 128
	heap := func(pods int) int64 {
		return memory.Sizes{Ether: true}.Heap(1, 1, pods) - memory.Sizes{}.Heap(1, 1, pods)
	}
	perPeer := heap(2) - heap(1)
	// The formula has EtherStore twice, half of that as garbage, and 4 MiB of free packets.
	fixed := heap(1) - perPeer - 3*memory.EtherStore - 4<<20

	n := quiet()
	a, b := simulated(t, n)
	offers := make([][]byte, peers)
	for i := range offers {
		offers[i] = b.l.Prepare(0).Offer()
	}
	a.l.conns = make([]*conn, peers)
	before := live()
	u, _, err := openUDP(a.l.cfg.Listen, &a.l.stats)
	if err != nil {
		t.Fatal(err)
	}
	out := newOutput(&a.l.stats)
	for i := range a.l.conns {
		e := a.l.Prepare(link.Peer(i))
		if _, err := e.accept(offers[i]); err != nil {
			t.Fatal(err)
		}
		a.l.conns[i] = e.handOver()
	}
	fillPulls(t, a.l)
	took := live() - before
	if most := fixed + peers*perPeer; took > most || took < most/4 {
		t.Errorf("%d KiB are allocated for %d peers; the formula has %d KiB and %d bytes a peer", took>>10, peers, fixed>>10, perPeer)
	}
	runtime.KeepAlive(out)
	if room, err := unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil || room > 2*memory.EtherSocket {
		t.Errorf("the socket takes %d bytes of packets (%v); the formula has %d", room, err, 2*memory.EtherSocket)
	}
	if err := u.close(); err != nil {
		t.Error(err)
	}
	closeSimulated(t, n, a)
	closeSimulated(t, n, b)
}

// fillPulls makes each connection answer as many asks, and read as much, as it may.
func fillPulls(t *testing.T, l *Link) {
	t.Helper()
	refused := 0
	for i, c := range l.conns {
		c.bodyMax = bodyMost
		for range pullsPerConn {
			err := l.Read(link.Peer(i), 1, link.Ref{Len: 1 << 30}, link.Key{})
			if err != nil && !errors.Is(err, link.ErrKey) {
				t.Fatal(err)
			}
			if err != nil {
				refused++
			}
		}
		ask := make([]byte, askBytes)
		ask[24], ask[33], ask[38] = 1, 1, 1 // one fragment of 256 bytes of a block of 64 KiB
		for range servingMax + 1 {
			c.onAsk(ask)
		}
		if c.err != nil || len(c.pulls.serving) != servingMax {
			t.Fatalf("%d asks wait: %v", len(c.pulls.serving), c.err)
		}
	}
	if l.reads.pulls != pullsMost || refused != len(l.conns)*pullsPerConn-pullsMost {
		t.Errorf("%d pulls are under way, and %d were refused", l.reads.pulls, refused)
	}
}

// live returns the bytes of the objects that are in use.
func live() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC() // what a finalizer held
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
