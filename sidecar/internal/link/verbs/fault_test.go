package verbs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// diary is a sink that records its events.
type diary struct {
	heap
	dones   map[uint64]error
	written []uint64
	downs   []error
}

func newDiary() *diary { return &diary{dones: map[uint64]error{}} }

func (d *diary) Done(_ link.Peer, token uint64, err error) { d.dones[token] = err }
func (d *diary) Written(_ link.Peer, notify uint64)        { d.written = append(d.written, notify) }
func (d *diary) Delivered(link.Peer, uint64)               {}
func (d *diary) Down(_ link.Peer, err error)               { d.downs = append(d.downs, err) }

// bench is two connected links over devices of memory.
type bench struct {
	t      *testing.T
	a, b   *Link
	an, bn *fakeNIC
	mem    plain // memory of both: B's is the upper half
	sa, sb *diary
}

func newBench(t *testing.T, receives string) *bench {
	t.Helper()
	f := newFabric()
	x := &bench{t: t, mem: make(plain, 4<<20), sa: newDiary(), sb: newDiary()}
	open := func(name string) (*Link, *fakeNIC) {
		n, err := f.open(name)
		if err != nil {
			t.Fatal(err)
		}
		l := newTestLink(t, receives, nil, n)
		l.SetMemory(x.mem)
		return l, n
	}
	x.a, x.an = open("near0")
	x.b, x.bn = open("far0")
	t.Cleanup(func() {
		if err := errors.Join(x.a.Close(), x.b.Close()); err != nil {
			t.Error(err)
		}
	})
	join(t, x.a, x.b)
	return x
}

// until polls both links until over returns true.
func (x *bench) until(what string, over func() bool) {
	x.t.Helper()
	for range 100_000 {
		if over() {
			return
		}
		x.a.Poll(x.sa)
		x.b.Poll(x.sb)
	}
	x.t.Fatalf("%s does not happen: %+v %+v", what, x.sa, x.sb)
}

func (x *bench) register(off, n uint64) link.Key {
	x.t.Helper()
	k, err := x.b.Register(link.Ref{Region: 1, Off: off, Len: n})
	if err != nil {
		x.t.Fatal(err)
	}
	return k
}

// TestNotifyOfManyBits checks that a notification that does not fit an immediate arrives
// after its data, for small and large writes, and that the write ends after it.
func TestNotifyOfManyBits(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		k := x.register(2<<20, 2<<20)
		for i, n := range []uint64{0, 8, 5000, 1 << 20} {
			notify := uint64(i+1)<<40 | 5
			x.mem[n] = byte(i + 1)
			if err := x.a.Write(0, uint64(i), link.Ref{Region: 1, Len: n + 1}, k, notify); err != nil {
				t.Fatal(err)
			}
			x.until("a notification", func() bool { return len(x.sb.written) == i+1 })
			if x.sb.written[i] != notify || x.mem[2<<20+n] != byte(i+1) {
				t.Errorf("write of %d bytes: notification %#x, last byte %d", n, x.sb.written[i], x.mem[2<<20+n])
			}
			x.until("the end", func() bool { _, over := x.sa.dones[uint64(i)]; return over })
		}
	})
}

// TestWritesEndNotified checks that the writes of a broken connection that succeeded were
// reported at the target.
func TestWritesEndNotified(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		for cut := range 40 {
			x := newBench(t, receives)
			k := x.register(2<<20, 1<<20)
			for i := range uint64(12) {
				notify := i + 1
				if i%3 == 0 {
					notify |= 1 << 40
				}
				if err := x.a.Write(0, notify, link.Ref{Region: 1, Len: 3000 * (i + 1)}, k, notify); err != nil {
					t.Fatal(err)
				}
			}
			for range cut {
				x.a.Poll(x.sa)
				if cut%3 != 0 { // otherwise B sees nothing before the cut
					x.b.Poll(x.sb)
				}
			}
			x.a.Break(0)
			x.until("the end at both", func() bool { return len(x.sa.downs) == 1 && len(x.sb.downs) == 1 })
			told := map[uint64]bool{}
			for _, n := range x.sb.written {
				told[n] = true
			}
			if len(x.sa.dones) != 12 {
				t.Fatalf("cut %d: %d of 12 writes ended", cut, len(x.sa.dones))
			}
			for token, err := range x.sa.dones {
				if err == nil && !told[token] {
					t.Errorf("cut %d: write %#x ended well and was not reported", cut, token)
				}
			}
		}
	})
}

// TestDeviceGone checks that when the device is lost all connections end with an error
// that names it, that Config.Lost is called, and that peers are reached by sockets from
// then on.
func TestDeviceGone(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		var lost error
		x.a.cfg.Lost = func(err error) { lost = err }
		k := x.register(2<<20, 1<<20)
		if err := x.a.Write(0, 1, link.Ref{Region: 1, Len: 1 << 20}, k, 9); err != nil {
			t.Fatal(err)
		}
		x.an.broken = unix.EIO
		x.until("the end at both", func() bool { return len(x.sa.downs) == 1 && len(x.sb.downs) == 1 })
		if err := x.sa.downs[0]; !errors.Is(err, link.ErrBroken) || !strings.Contains(err.Error(), "RDMA device near0 is lost: ") {
			t.Errorf("the connection ended with %v", err)
		}
		if lost == nil || !strings.Contains(lost.Error(), "near0") || !errors.Is(x.sa.dones[1], link.ErrBroken) {
			t.Errorf("Lost got %v; the write ended with %v", lost, x.sa.dones[1])
		}
		if _, err := x.a.Prepare(); err == nil || !strings.Contains(err.Error(), "near0 is lost") {
			t.Errorf("another queue pair: %v", err)
		}
		if _, err := x.a.Register(link.Ref{Region: 1, Len: 8}); err == nil {
			t.Error("memory is registered with a lost device")
		}
		fds := sockets(t)
		if err := errors.Join(x.a.Attach(0, fds[0]), x.b.Attach(0, fds[1])); err != nil {
			t.Fatal(err)
		}
		if c := x.a.PeerCaps(0); c.Name != "tcp" {
			t.Errorf("the peer is reached by %s, want tcp", c.Name)
		}
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 3}, Inline: [64]byte{1, 2, 3}}
		if x.a.Post(0, []*link.Frame{f}) != 1 {
			t.Fatal("the frame was not accepted")
		}
		x.until("a frame by tcp", func() bool { return len(x.sb.heads) == 1 })
	})
}

// TestPortDown checks that connections end when the port is down, and that another one
// may be made when it is back.
func TestPortDown(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		x.an.faults = []fault{{what: "a cable is out", note: true}, {what: "port error", port: true}}
		x.an.ring()
		x.until("the end at both", func() bool { return len(x.sa.downs) == 1 && len(x.sb.downs) == 1 })
		if err := x.sa.downs[0]; !errors.Is(err, link.ErrBroken) || !strings.Contains(err.Error(), "near0 port 1: port error") {
			t.Errorf("the connection ended with %v", err)
		}
		join(t, x.a, x.b)
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1}}
		if x.a.Post(0, []*link.Frame{f}) != 1 {
			t.Fatal("the frame was not accepted")
		}
		x.until("a frame", func() bool { return len(x.sb.heads) == 1 })
	})
}

// TestEarlyMessages checks that messages that a peer sends before this side has joined
// the connection are handed over, and first.
func TestEarlyMessages(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		x.a.Forget(0)
		x.b.Forget(0)
		e, g := ends(t, x.a, x.b)
		fds := sockets(t)
		if err := x.a.Join(0, fds[0], e); err != nil {
			t.Fatal(err)
		}
		post := func(seq uint64) {
			if x.a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: seq}}}) != 1 {
				t.Fatal("the frame was not accepted")
			}
			x.a.Poll(x.sa)
			x.b.Poll(x.sb)
		}
		post(1)
		post(2)
		x.b.Arm() // polls the completions that are there, too
		post(3)
		if err := x.b.Join(0, fds[1], g); err != nil {
			t.Fatal(err)
		}
		post(4)
		x.until("four frames", func() bool { return len(x.sb.heads) == 4 })
		for i, h := range x.sb.heads {
			if h.Seq != uint64(i+1) {
				t.Fatalf("frame %d received as number %d", h.Seq, i+1)
			}
		}
	})
}

// TestUnjoinedEndpoints checks that endpoints that were not joined are closed with the
// link, at most once, whichever side closes them.
func TestUnjoinedEndpoints(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		var list []*Endpoint
		for range 3 {
			e, err := x.a.Prepare()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		for range 2 { // the link closes the others: the device reports those that remain
			if err := list[0].Close(); err != nil {
				t.Error(err)
			}
		}
		if n := len(x.an.pairs); n != 3 { // and the connected one
			t.Errorf("%d queue pairs are open, want 3", n)
		}
	})
}

// TestSleep checks that after Arm the descriptor becomes readable when a message arrives,
// and not before.
func TestSleep(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		for x.a.Poll(x.sa)+x.b.Poll(x.sb) > 0 {
		}
		readable := func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(x.b.FD()), Events: unix.POLLIN}}, 0)
			return err == nil && n == 1
		}
		if x.b.Arm() || readable() {
			t.Fatal("Arm reports work before any message")
		}
		x.a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}})
		x.a.Poll(x.sa)
		if !readable() {
			t.Fatal("a message has arrived, and the descriptor is not readable")
		}
		if !x.b.Arm() {
			t.Fatal("Arm reports no work although there is some")
		}
		x.b.Poll(x.sb)
		if len(x.sb.heads) != 1 {
			t.Fatal("the message that Arm has found is lost")
		}
	})
}

// TestRetainedMemory checks that memory of operations stays registered, within bounds,
// until its region is dropped.
func TestRetainedMemory(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		k := x.register(2<<20, 1<<20)
		before := len(x.an.regions)
		do := func(region link.Region, off uint64) {
			t.Helper()
			delete(x.sa.dones, 1)
			if err := x.a.Read(0, 1, link.Ref{Region: region, Off: off, Len: 8192}, k); err != nil {
				t.Fatal(err)
			}
			x.until("the end of a read", func() bool { _, over := x.sa.dones[1]; return over })
			if err := x.sa.dones[1]; err != nil {
				t.Fatal(err)
			}
		}
		do(5, 0)
		do(5, 0)
		if n := len(x.an.regions) - before; n != 1 {
			t.Errorf("the same memory is known %d times", n)
		}
		for i := range uint64(200) {
			do(6, i*8192%(1<<20))
		}
		if n := len(x.an.regions) - before; n > ownMax+1 {
			t.Errorf("%d ranges are known, at most %d should be", n, ownMax)
		}
		x.a.DropRegion(6)
		x.a.DropRegion(5)
		if n := len(x.an.regions) - before; n != 0 {
			t.Errorf("%d ranges of regions that are gone are known", n)
		}
		// A device or limit with no room: registrations that are not in use make room.
		x.an.limit = len(x.an.regions) + 2
		for i := range uint64(10) {
			do(7, i*8192)
		}
	})
}

// strict is a sink that refuses every frame.
type strict struct{ *diary }

func (strict) Deliver(link.Peer, *wire.Header, []byte) error {
	return fmt.Errorf("%w: a test's", link.ErrProtocol)
}

// TestViolationOfTheLastFrames checks that a breach of the protocol is reported even for
// a frame that is handed over because the connection ends or is replaced.
func TestViolationOfTheLastFrames(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		for name, end := range map[string]func(x *bench, s strict) error{
			"ends": func(x *bench, s strict) error {
				x.b.conns[0].fail(errSocket)
				x.b.Poll(s)
				return errors.Join(x.sb.downs...)
			},
			"is replaced": func(x *bench, s strict) error {
				x.b.streaming.Sink = s
				return x.b.replace(0)
			},
		} {
			t.Run(name, func(t *testing.T) {
				x := newBench(t, receives)
				if x.a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: 1}}}) != 1 {
					t.Fatal("a frame was not accepted")
				}
				x.a.Poll(x.sa)
				if err := end(x, strict{x.sb}); !errors.Is(err, link.ErrProtocol) {
					t.Errorf("got %v, want %v", err, link.ErrProtocol)
				}
				if x.b.conns[0] != nil {
					t.Error("the connection goes on")
				}
			})
		}
	})
}
