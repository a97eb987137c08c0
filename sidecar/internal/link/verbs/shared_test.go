package verbs

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// numbered posts a frame with number seq.
func numbered(t *testing.T, l *Link, seq uint64) {
	t.Helper()
	if l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: seq}}}) != 1 {
		t.Fatal("the frame was not accepted")
	}
}

// TestSharedReceivesStay checks that connections and unjoined endpoints that end while
// messages for them wait, far more than there are shared receives, lose no receives, even
// if a device drops the completions of a queue pair, or never reports its last receive.
func TestSharedReceivesStay(t *testing.T) {
	for name, mute := range map[string]bool{"told": false, "mute": true} {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, bootstrap.ReceivesShared)
			rounds := 3 * (recvSlots + sharedBatch)
			if mute { // each takes its time
				rounds, x.an.mute, x.bn.mute = 4, true, true
			}
			for i := range rounds {
				for seq := range uint64(5) {
					numbered(t, x.a, seq+1)
				}
				x.a.Poll(x.sa)
				x.a.Forget(0)
				x.b.Forget(0)
				if i%2 == 0 {
					join(t, x.a, x.b)
					continue
				}
				e, g := ends(t, x.a, x.b) // b's handshake fails
				fds := sockets(t)
				if err := x.a.Join(0, fds[0], e); err != nil {
					t.Fatal(err)
				}
				numbered(t, x.a, 1)
				x.a.Poll(x.sa)
				if err := g.Close(); err != nil {
					t.Fatal(err)
				}
				for over := time.Now().Add(2 * settleTimeout); len(x.bn.pairs) > 0 && time.Now().Before(over); {
					x.b.Poll(x.sb)
				}
				if n := len(x.bn.pairs); n != 0 {
					t.Fatalf("%d queue pairs of an endpoint that was closed", n)
				}
				x.a.Forget(0)
				if err := unix.Close(fds[1]); err != nil {
					t.Fatal(err)
				}
				join(t, x.a, x.b)
			}
			numbered(t, x.a, 99)
			x.until("a frame", func() bool { n := len(x.sb.heads); return n > 0 && x.sb.heads[n-1].Seq == 99 })
			if posted := len(x.bn.shared.receives); posted+len(x.b.sharing.receives.free) != x.bn.shared.slots || x.bn.lost > 0 {
				t.Errorf("%d of %d shared receives are posted, %d are to be, %d are lost", posted, x.bn.shared.slots, len(x.b.sharing.receives.free), x.bn.lost)
			}
		})
	}
}

// TestNumberIsUsedAgain checks that messages on a connection whose queue pair has the
// number of an ended one belong to the new one, even before this side has joined it.
func TestNumberIsUsedAgain(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	x.bn.reuses = true
	for range 20 {
		old := x.b.conns[0].local.pair
		x.a.Forget(0)
		x.b.Forget(0)
		x.until("the end of the queue pair", func() bool { return len(x.bn.pairs) == 0 })
		e, g := ends(t, x.a, x.b)
		if g.c.local.pair != old {
			t.Fatalf("the queue pair is %d, the last one was %d", g.c.local.pair, old)
		}
		fds := sockets(t)
		if err := x.a.Join(0, fds[0], e); err != nil {
			t.Fatal(err)
		}
		before := len(x.sb.heads)
		numbered(t, x.a, 1)
		x.a.Poll(x.sa)
		x.b.Poll(x.sb)
		if err := x.b.Join(0, fds[1], g); err != nil {
			t.Fatal(err)
		}
		numbered(t, x.a, 2)
		x.until("two frames", func() bool { return len(x.sb.heads) == before+2 })
	}
}

// TestMoreCreditThanReceives checks that peers that together may send more than there are
// shared receives wait for each other's, and that everything arrives.
func TestMoreCreditThanReceives(t *testing.T) {
	const senders, frames = 6, 400
	f := newFabric()
	open := func(peers int) (*Link, *fakeNIC) {
		n, err := f.open("fake")
		if err != nil {
			t.Fatal(err)
		}
		s, err := tcp.New(nil, peers)
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLink(Config{Peers: peers, Receives: bootstrap.ReceivesShared, SharedMax: 4, Stream: s, Log: slog.New(slog.DiscardHandler)}, nil, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return l, n
	}
	to, device := open(senders)
	got := newDiary()
	var from []*Link
	for i := range senders {
		l, _ := open(1)
		e, g := ends(t, l, to)
		fds := sockets(t)
		if err := errors.Join(l.Join(0, fds[0], e), to.Join(link.Peer(i), fds[1], g)); err != nil {
			t.Fatal(err)
		}
		from = append(from, l)
	}
	if credit := senders * recvSlots; device.shared.slots >= credit {
		t.Fatalf("%d receives for a credit of %d: no peer has to wait", device.shared.slots, credit)
	}
	sent, none := make([]int, senders), newDiary()
	for range 100_000 {
		for i, l := range from {
			for sent[i] < frames && l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: uint64(sent[i] + 1)}}}) == 1 {
				sent[i]++
			}
			l.Poll(none)
		}
		if to.Poll(got); len(got.heads) == senders*frames {
			return
		}
	}
	t.Fatalf("%d of %d frames received", len(got.heads), senders*frames)
}

// TestNoSharedReceives checks that connections have receives of their own if a device
// cannot share them.
func TestNoSharedReceives(t *testing.T) {
	f := newFabric()
	n, err := f.open("fake")
	if err != nil {
		t.Fatal(err)
	}
	n.noShare = true
	l := newTestLink(t, bootstrap.ReceivesShared, nil, n)
	e, err := l.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if e.c.receives == nil {
		t.Error("a connection without receives")
	}
	if err := errors.Join(e.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestWhenReceivesAreShared checks that receives are shared from the number of peers on
// whose own receives would be more.
func TestWhenReceivesAreShared(t *testing.T) {
	for peers, want := range map[int]int{2: 0, sharedMax / recvSlots: 0, sharedMax/recvSlots + 1: sharedMax + sharedBatch, 1000: sharedMax + sharedBatch} {
		n, err := newFabric().open("fake")
		if err != nil {
			t.Fatal(err)
		}
		s, err := tcp.New(nil, peers)
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLink(Config{Peers: peers, Stream: s, Log: slog.New(slog.DiscardHandler)}, nil, n)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.sharedSlots(); got != want {
			t.Errorf("%d peers: %d shared receives, want %d", peers, got, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReturnedWakes checks that an endpoint that is closed while the engine sleeps is
// ended.
func TestReturnedWakes(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	_, g := ends(t, x.a, x.b)
	for x.a.Poll(x.sa)+x.b.Poll(x.sb) > 0 {
	}
	readable := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(x.b.FD()), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	}
	if x.b.Arm() || readable() {
		t.Fatal("Arm reports work before any event")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if !readable() {
		t.Fatal("an endpoint was closed, but the descriptor is not readable")
	}
	x.until("its end", func() bool { return len(x.bn.pairs) == 1 })
}

// TestReturnedInSilence checks that a closed endpoint is waited for only silentTimeout,
// and does not mark the device as silent, since it was not used. Closing it twice has no
// further effect.
func TestReturnedInSilence(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	x.bn.mute = true
	_, g := ends(t, x.a, x.b)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	x.b.Poll(x.sb)
	x.b.Poll(x.sb)
	if g.c.errorSince.IsZero() {
		t.Fatal("the pair is not moved to the error state")
	}
	g.c.errorSince = g.c.errorSince.Add(-2 * silentTimeout)
	for range 3 {
		x.b.Poll(x.sb)
	}
	if len(x.bn.pairs) != 1 || x.b.sharing.silent {
		t.Errorf("%d queue pairs are there, want 1; the device is marked silent: %v", len(x.bn.pairs), x.b.sharing.silent)
	}
	tags := len(x.b.table.tags)
	if err := g.Close(); err != nil || len(x.b.table.tags) != tags {
		t.Errorf("closed once more: %v, and %d tags are free, want %d", err, len(x.b.table.tags), tags)
	}
}

// TestSharedReceivesAreNotTaken checks that a peer that sends more messages than it has
// credit for, and so uses receives of other peers, loses its connection.
func TestSharedReceivesAreNotTaken(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	x.a.conns[0].credit.granted += recvSlots // it sees no notification
	for seq := range uint64(2 * recvSlots) {
		numbered(t, x.a, seq+1)
		x.a.Commit()
	}
	x.until("its end", func() bool { return len(x.sb.downs) > 0 })
	if err := x.sb.downs[0]; !errors.Is(err, link.ErrProtocol) || len(x.sb.heads) > recvSlots {
		t.Errorf("%d frames received; the end is %v", len(x.sb.heads), err)
	}
}
