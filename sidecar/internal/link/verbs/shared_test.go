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

// numbered posts a frame.
func numbered(t *testing.T, l *Link, seq uint64) {
	t.Helper()
	if l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: seq}}}) != 1 {
		t.Fatal("the frame was not taken")
	}
}

// TestSharedReceivesStay: connections and ends that are given up while messages for
// them wait, far more than there are shared receives, take none with them, also where a
// device forgets the completions of a queue pair, or never says that it has ended.
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
				for over := time.Now().Add(2 * settleWithin); len(x.bn.pairs) > 0 && time.Now().Before(over); {
					x.b.Poll(x.sb)
				}
				if n := len(x.bn.pairs); n != 0 {
					t.Fatalf("%d queue pairs of an end that was given up", n)
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

// TestNumberIsUsedAgain: what comes on a connection whose queue pair has the number of one
// that is gone is its own, also before this side has taken it over.
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

// TestMoreCreditThanReceives: peers that together may send more than there are shared
// receives wait for each other's, and everything arrives.
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
		t.Fatalf("%d receives for a credit of %d: nobody has to wait", device.shared.slots, credit)
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
	t.Fatalf("%d of %d frames came", len(got.heads), senders*frames)
}

// TestNoSharedReceives: where a device has none, connections have receives of their own.
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

// TestWhoShares: receives are shared from the number of peers on whose own would be more.
func TestWhoShares(t *testing.T) {
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

// TestGivenUpWakes: an end that is given up while the engine sleeps is ended all the same.
func TestGivenUpWakes(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	_, g := ends(t, x.a, x.b)
	for x.a.Poll(x.sa)+x.b.Poll(x.sb) > 0 {
	}
	readable := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(x.b.FD()), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	}
	if x.b.Arm() || readable() {
		t.Fatal("there is work where nothing has come")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if !readable() {
		t.Fatal("an end was given up, and nobody is woken")
	}
	x.until("its end", func() bool { return len(x.bn.pairs) == 1 })
}

// TestGivenUpInSilence: an end that is given up is not waited for as others are, and says
// nothing of its device, which tells of queue pairs that were used. To give it up twice is
// as good as once.
func TestGivenUpInSilence(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	x.bn.mute = true
	_, g := ends(t, x.a, x.b)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	x.b.Poll(x.sb)
	x.b.Poll(x.sb)
	if g.c.sunk.IsZero() {
		t.Fatal("it is not moved to the error state")
	}
	g.c.sunk = g.c.sunk.Add(-2 * silentAfter)
	for range 3 {
		x.b.Poll(x.sb)
	}
	if len(x.bn.pairs) != 1 || x.b.sharing.silent {
		t.Errorf("%d queue pairs are there, want 1; the device is held for silent: %v", len(x.bn.pairs), x.b.sharing.silent)
	}
	tags := len(x.b.places.tags)
	if err := g.Close(); err != nil || len(x.b.places.tags) != tags {
		t.Errorf("given up once more: %v, and %d places are free, which were %d", err, len(x.b.places.tags), tags)
	}
}

// TestSharedReceivesAreNotTaken: a peer that sends more messages than it was told of takes
// receives that are others', and loses its connection.
func TestSharedReceivesAreNotTaken(t *testing.T) {
	x := newBench(t, bootstrap.ReceivesShared)
	x.a.conns[0].credit.granted += recvSlots // it takes no notice
	for seq := range uint64(2 * recvSlots) {
		numbered(t, x.a, seq+1)
		x.a.Commit()
	}
	x.until("its end", func() bool { return len(x.sb.downs) > 0 })
	if err := x.sb.downs[0]; !errors.Is(err, link.ErrProtocol) || len(x.sb.heads) > recvSlots {
		t.Errorf("%d frames came; the end is %v", len(x.sb.heads), err)
	}
}
