//go:build rdma && rdmaguest

package verbs

import (
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

var (
	dialed = flag.String("verbs.dial", "", "TestEngineLatency: be the second side, of the one that listens at this address")
	listen = flag.String("verbs.listen", "", "TestEngineLatency: listen here for the second side, which is started by hand; empty: start it on this machine, and ib_write_lat, too")
	turns  = flag.Int("verbs.turns", 3, "turns of TestEngineLatency")
)

// latencyRounds is how many round trips are timed, after latencyWarm untimed ones.
const latencyRounds, latencyWarm = 500, 50

// TestEngineLatency prints the time of 8 bytes one way between two engines, each in a
// process that polls, as both sides of ib_write_lat are, with the rank in the thread that
// executes the turns; and, alternately, the time of ib_write_lat.
func TestEngineLatency(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if runtime.GOMAXPROCS(0) < 2 { // as the sidecar does, with its reasons
		runtime.GOMAXPROCS(2)
	}
	if *dialed != "" {
		pin(t, runtime.NumCPU()-1)
		for range *turns {
			for _, s := range settings {
				second(t, s)
			}
		}
		return
	}
	at := *listen
	if at == "" {
		at = "10.8.0.1:7000"
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range *turns {
		pin(t, 0)
		var lat time.Duration
		var other *exec.Cmd
		if *listen == "" {
			lat = perftest(t)
			pin(t, 0, 1) // a program reads its affinity when it starts
			other = exec.Command(os.Args[0], "-test.run", "^TestEngineLatency$", "-verbs.turns", "1", "-verbs.dial", at)
			other.Stderr = os.Stderr
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			pin(t, 0)
		}
		for _, s := range settings {
			us := first(t, l, s)
			t.Logf("engine, %s: %.2f us", s, us)
			if lat > 0 {
				t.Logf("ib_write_lat: %.2f us, of which that is %.2f times", float64(lat)/1e3, us*1e3/float64(lat))
			}
		}
		if other != nil {
			if err := other.Wait(); err != nil {
				t.Fatal("the second side: ", err)
			}
		}
	}
}

// pin restricts this thread, and the processes that it starts, to some of the machine's
// processors: two that poll on the same one alternate at the ticks of its clock.
func pin(t *testing.T, processors ...int) {
	t.Helper()
	var set unix.CPUSet
	for _, p := range processors {
		set.Set(p)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
}

// first runs the side that measures.
func first(t *testing.T, l net.Listener, s setting) (us float64) {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r := connected(t, 0, c, s)
	defer r.close(t)
	times := make([]time.Duration, 0, latencyRounds)
	for i := range uint64(latencyRounds + latencyWarm) {
		begun := time.Now()
		r.ranks[0].recv(1)
		r.ranks[0].send(1, i)
		r.until(t, i)
		if took := time.Since(begun); i >= latencyWarm {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 2e3
}

// second runs the side that answers.
func second(t *testing.T, s setting) {
	t.Helper()
	var c net.Conn
	var err error
	for range 300 { // it takes a while to listen
		if c, err = net.Dial("tcp", *dialed); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := connected(t, 1, c, s)
	defer r.close(t)
	r.ranks[0].recv(0)
	for i := range uint64(latencyRounds + latencyWarm) {
		r.until(t, i)
		r.ranks[0].recv(0)
		r.ranks[0].send(0, i)
	}
	for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; { // the last message may have to be sent twice
		r.engine.Turn()
	}
}

// until executes turns until message value has arrived.
func (r *rig) until(t *testing.T, value uint64) {
	for work := r.engine.Turn(); !r.ranks[0].took(); work = r.engine.Turn() {
		r.engine.Gosched(work) // as Run does
	}
	if r.ranks[0].received != value {
		t.Fatalf("message %d brought %d", value, r.ranks[0].received)
	}
}

// connected returns the engine of pod self, which is connected to the other one by the
// offers that c carries, as in a sidecar's handshake.
func connected(t *testing.T, self link.Peer, c net.Conn, s setting) *rig {
	t.Helper()
	r := newRig(t, self, []int32{0, 1}, s)
	e, err := r.link.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := swap(c, e.Offer())
	if err == nil {
		if err = e.Connect(theirs); err == nil {
			_, err = swap(c, []byte("ready"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, unix.SetNonblock(fd, true), f.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	r.joined(t, 1-self, fd, e)
	r.engine.Turn()
	return r
}

// swap exchanges messages with the other side.
func swap(c net.Conn, mine []byte) ([]byte, error) {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(mine)))
	_, err := c.Write(append(n[:], mine...))
	if err == nil {
		_, err = io.ReadFull(c, n[:])
	}
	if err != nil {
		return nil, err
	}
	theirs := make([]byte, min(binary.LittleEndian.Uint32(n[:]), 4096))
	_, err = io.ReadFull(c, theirs)
	return theirs, err
}
