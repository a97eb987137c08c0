//go:build rdma && rdmaguest

package verbs

import (
	"errors"
	"net/netip"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// openTest opens the machine's device.
func openTest(t *testing.T) nic {
	t.Helper()
	mine, err := addresses()
	if err != nil {
		t.Fatal(err)
	}
	n, err := openDevice([]Granted{{Name: "rxe0", NUMA: -1}}, 2, func(ports []portState) (Port, error) { return choose(ports, mine, netip.Addr{}, nil) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDevice runs the suite over a device, two queue pairs of which are connected.
func TestDevice(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		linktest.Run(t, func(t *testing.T) *linktest.Pair { return pairOf(t, receives, func() nic { return openTest(t) }) })
	})
}

// TestPort checks that the chosen port has an address of this namespace, on RoCE v2.
func TestPort(t *testing.T) {
	n := openTest(t)
	p := n.portInfo()
	t.Log(p)
	mine, err := addresses()
	if err != nil {
		t.Fatal(err)
	}
	if p.Fabric != RoCEv2 || !slices.Contains(mine, p.GID.Unmap()) || !p.GID.Unmap().Is4() {
		t.Errorf("chosen was %v, want RoCE v2 with an IPv4 address of %v", p, mine)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
}

// TestNotGranted checks that a device that was not granted is not used.
func TestNotGranted(t *testing.T) {
	_, err := Open(Config{Peers: 2}, nil, []Granted{{Name: "mlx5_0"}}, "10.8.0.1:7077")
	if err == nil {
		t.Fatal("opened a device that is not there")
	}
	t.Log(err)
}

// tally counts events.
type tally struct {
	link.Sink
	written, done int
}

func (s *tally) Written(link.Peer, uint64)     { s.written++ }
func (s *tally) Done(link.Peer, uint64, error) { s.done++ }

// TestCost prints the cost of the link over the device, for comparison with perftest on
// the same machine: a notified write of 8 bytes from one link to another and back, both
// polled by this thread, and an empty Poll. Neither may allocate.
func TestCost(t *testing.T) {
	f := make(plain, 1<<16)
	a, b := newTestLink(t, bootstrap.ReceivesAuto, nil, openTest(t)), newTestLink(t, bootstrap.ReceivesAuto, nil, openTest(t))
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	a.SetMemory(f)
	b.SetMemory(f)
	join(t, a, b)
	here, there := &tally{}, &tally{}
	at, err := a.Register(link.Ref{Region: 1, Len: 4096})
	if err != nil {
		t.Fatal(err)
	}
	bt, err := b.Register(link.Ref{Region: 1, Off: 8192, Len: 4096})
	if err != nil {
		t.Fatal(err)
	}
	way := func(from, to *Link, at, fs *tally, key link.Key, n uint64) {
		if err := from.Write(0, n, link.Ref{Region: 1, Off: 32768, Len: 8}, key, 1+n%16); err != nil {
			t.Fatal(err)
		}
		from.Commit()
		for want := at.written + 1; at.written < want; {
			to.Poll(at)
			from.Poll(fs)
		}
	}
	const rounds = 500
	times := make([]time.Duration, 0, rounds)
	for i := range uint64(rounds) {
		begun := time.Now()
		way(a, b, there, here, bt, i)
		way(b, a, here, there, at, i)
		times = append(times, time.Since(begun)/2)
	}
	if n := testing.AllocsPerRun(200, func() { way(a, b, there, here, bt, 0); way(b, a, here, there, at, 0) }); n != 0 {
		t.Errorf("%v allocations for two small writes, want 0", n)
	}
	slices.Sort(times)
	begun := time.Now()
	const polls = 20_000
	for range polls {
		a.Poll(here)
	}
	empty := time.Since(begun) / polls
	lat := perftest(t)
	t.Logf("8 bytes, one way: median %v, best tenth %v; ib_write_lat: typical %v; a Poll that finds nothing: %v", times[rounds/2], times[rounds/10], lat, empty)
}

// perftest returns the time that ib_write_lat calls typical for 8 bytes, between two
// processes. It measures the speed of the processor's clock by itself, and sometimes
// fails to.
func perftest(t *testing.T) time.Duration {
	t.Helper()
	for range 5 {
		if us := writeLatency(t); us > 0 && us < 1e9 {
			return time.Duration(us * float64(time.Microsecond))
		}
	}
	t.Fatal("ib_write_lat tells no time")
	return 0
}

func writeLatency(t *testing.T) float64 {
	t.Helper()
	line := []string{"-d", "rxe0", "-x", "1", "-F", "-s", "8", "-n", "1000"}
	server := exec.Command("ib_write_lat", line...)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pin(t, 1)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	pin(t, 0)
	var said []byte
	err := errors.New("not tried")
	for range 100 { // it takes a while to listen
		if said, err = exec.Command("ib_write_lat", append(line, "10.8.0.1")...).CombinedOutput(); err == nil {
			break
		}
	}
	if err := errors.Join(err, server.Wait()); err != nil {
		t.Fatalf("ib_write_lat: %v\n%s", err, said)
	}
	m := regexp.MustCompile(`(?m)^ *8 +1000 +\S+ +\S+ +(\S+)`).FindSubmatch(said)
	if m == nil {
		t.Fatalf("ib_write_lat says nothing:\n%s", said)
	}
	us, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", m[0])
	return us
}

// TestGatherCost prints the cost of a message that is copied twice before the device has
// it, as the core and the link do (its send then ends at once), and of one that is
// gathered from the application's buffer: until it has arrived, and until the sender
// knows that. This thread polls both links, so that no side sleeps.
func TestGatherCost(t *testing.T) {
	a, b := newTestLink(t, bootstrap.ReceivesAuto, nil, openTest(t)), newTestLink(t, bootstrap.ReceivesAuto, nil, openTest(t))
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	const pool, memory = 32 << 10, 1 << 20
	mem := make(arena, memory)
	a.SetMemory(mem)
	b.SetMemory(mem)
	a.AddRegion(arenaRegion, 0, memory)
	a.regs.alwaysRegister()
	join(t, a, b)
	there, here := &told{}, &told{}
	seq := uint64(0)
	send := func(n uint64, gathers bool) (received, ends time.Duration) {
		seq++
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: seq, Length: uint32(n)}}
		begun := time.Now()
		if gathers {
			f.Payload = link.Ref{Region: arenaRegion, Off: memory / 2, Len: n}
			f.Gather = a.Gathers(0, f.Payload)
		} else {
			f.Payload = link.Ref{Region: 1, Off: pool, Len: n} // the core's copy
			copy(mem.Bytes(f.Payload), mem[memory/2:][:n])
		}
		if a.Post(0, []*link.Frame{f}) != 1 {
			t.Fatal("the link takes no frame")
		}
		a.Commit()
		for want := there.frames + 1; there.frames < want; {
			yield(b.Poll(there))
		}
		received = time.Since(begun)
		for here.seq < seq {
			yield(a.Poll(here))
			b.Poll(there)
		}
		return received, time.Since(begun)
	}
	for _, n := range []uint64{512, 1600, 4 << 10, 8 << 10, 16 << 10} {
		var times [4][]time.Duration // copied: arrived, delivered; gathered: arrived, delivered
		for range 100 {
			for way := range 2 {
				received, ends := send(n, way == 1)
				times[2*way], times[2*way+1] = append(times[2*way], received), append(times[2*way+1], ends)
			}
		}
		for i := range times {
			slices.Sort(times[i])
		}
		m := func(i int) float64 { return float64(times[i][len(times[i])/2].Nanoseconds()) / 1e3 }
		t.Logf("%6d bytes: copied there after %.2f us, told after %.2f us; gathered there after %.2f us (gains %.1f %%), told after %.2f us", n, m(0), m(1), m(2), 100*(1-m(2)/m(0)), m(3))
	}
}

// yield runs the kernel's side of Soft-RoCE on a machine with one processor.
func yield(work int) {
	if work == 0 {
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // always succeeds (sched_yield(2))
	}
}

// told counts frames, and records the number of the last delivered frame.
type told struct {
	tally
	frames int
	seq    uint64
	place  []byte
}

func (s *told) Deliver(link.Peer, *wire.Header, []byte) error { s.frames++; return nil }
func (s *told) Placed(link.Peer) error                        { s.frames++; return nil }
func (s *told) Delivered(_ link.Peer, seq uint64)             { s.seq = seq }
func (s *told) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	if len(s.place) < int(h.Length) {
		s.place = make([]byte, h.Length)
	}
	return s.place[:h.Length], nil
}
