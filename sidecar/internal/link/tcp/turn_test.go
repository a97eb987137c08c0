package tcp_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// tally counts frames by peer.
type tally struct {
	link.Sink
	frames []int
}

func (s *tally) Deliver(peer link.Peer, _ *wire.Header, _ []byte) error {
	s.frames[peer]++
	return nil
}

// TestPollDoesNotGrowWithThePeers checks that the bytes read by one Poll are bounded
// however many peers have sent, that the rest counts as work, and that every peer is
// served.
func TestPollDoesNotGrowWithThePeers(t *testing.T) {
	const each = 96 << 10 / wire.HeaderBytes
	for _, peers := range []int{8, 48, 100} {
		l, err := tcp.New(linktest.NewMemory(), peers)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var raw []byte
		for range each {
			var b [wire.HeaderBytes]byte
			h := wire.Header{Type: wire.Heartbeat}
			h.Encode(&b)
			raw = append(raw, b[:]...)
		}
		for peer := range link.Peer(peers) {
			x, y := socketPair(t)
			defer unix.Close(y)
			if err := l.Attach(peer, x); err != nil {
				t.Fatal(err)
			}
			if n, err := unix.Write(y, raw); err != nil || n != len(raw) {
				t.Fatalf("%d bytes written: %v", n, err)
			}
		}
		sink := &tally{frames: make([]int, peers)}
		polls, most, all := 0, 0, 0
		for all < peers*each {
			if l.Poll(sink) == 0 {
				t.Fatalf("%d peers: no work after %d of %d frames", peers, all, peers*each)
			}
			now := 0
			for _, n := range sink.frames {
				now += n
			}
			most, all, polls = max(most, now-all), now, polls+1
		}
		if most > 768<<10/wire.HeaderBytes {
			t.Errorf("%d peers: %d frames in one Poll", peers, most)
		}
		if polls > 2+peers/4 {
			t.Errorf("%d peers: %d Polls for %d frames", peers, polls, all)
		}
	}
}

// TestPeersTakeTurnsInPoll checks that peers that always have data do not delay the
// others.
func TestPeersTakeTurnsInPoll(t *testing.T) {
	const peers, rounds = 40, 20
	l, err := tcp.New(linktest.NewMemory(), peers)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var b [wire.HeaderBytes]byte
	h := wire.Header{Type: wire.Heartbeat}
	h.Encode(&b)
	raw := make([]byte, 0, 64<<10)
	for len(raw) < cap(raw) {
		raw = append(raw, b[:]...)
	}
	var ends []int
	for peer := range link.Peer(peers) {
		x, y := socketPair(t)
		defer unix.Close(y)
		if err := l.Attach(peer, x); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, y)
	}
	sink := &tally{frames: make([]int, peers)}
	sent := make([]int, peers)
	for range rounds {
		for peer, y := range ends {
			if sent[peer] == sink.frames[peer] { // all of its frames have arrived
				n, err := unix.Write(y, raw)
				if err != nil || n != len(raw) {
					t.Fatalf("%d bytes written: %v", n, err)
				}
				sent[peer] += n / wire.HeaderBytes
			}
		}
		l.Poll(sink)
	}
	least, most := sink.frames[0], 0
	for _, n := range sink.frames {
		least, most = min(least, n), max(most, n)
	}
	if least == 0 || most > 3*least {
		t.Errorf("the peers were served %d to %d times in %d Polls", least, most, rounds)
	}
}
