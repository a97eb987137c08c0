package core

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

const (
	reachWin   = 9
	reachBytes = 64 << 10
)

// reaching returns a duo whose pod 1 exposes a window, at place 0 of its arena.
func reaching(t *testing.T) *duo {
	t.Helper()
	d := newDuo(t, rendezvous.Auto, link.Caps{Register: true, Read: true, Write: true, InOrder: true})
	win := shm.Descriptor{Op: shm.OpWin, Req: 1, Class: shm.ClassArena, Context: reachWin}
	win.SetBody(0, reachBytes, 0, 0)
	d.submit(1, win)
	d.ports[1].ended = nil
	return d
}

// frames returns the types of the frames that were posted since the last call.
func (d *duo) frames() string {
	d.run()
	s := strings.Join(d.types, " ")
	d.types = nil
	return s
}

func onWindow(op shm.Op, req uint32, off, n uint64) shm.Descriptor {
	x := shm.Descriptor{Op: op, Req: req, Peer: 1, Context: reachWin}
	if op == shm.OpPut || op == shm.OpGet {
		x.Class = shm.ClassArena
		x.SetBody(0, n, off, 0)
	}
	return x
}

// last returns the request that ended last at a pod, and its status.
func (d *duo) last(pod int) (req uint32, status shm.Status) {
	e := d.ports[pod].ended
	if len(e) == 0 {
		return 0, shm.StatusNoMessage
	}
	return e[len(e)-1].Req, e[len(e)-1].Status
}

// TestReach checks that the first access asks for the window, and that later accesses and
// their flushes take no frame until the window is freed.
func TestReach(t *testing.T) {
	d := reaching(t)
	for i, x := range []struct {
		what   string
		pod    int
		d      shm.Descriptor
		frames string
		status shm.Status
	}{
		{"the first put", 0, onWindow(shm.OpPut, 2, 0, 1000), "expose put exposed", 0},
		{"its flush", 0, onWindow(shm.OpFlush, 3, 0, 0), "flush flushed", 0},
		{"another put", 0, onWindow(shm.OpPut, 4, 500, 1000), "", 0},
		{"its flush", 0, onWindow(shm.OpFlush, 5, 0, 0), "", 0},
		{"a get", 0, onWindow(shm.OpGet, 6, 1, 1), "", 0},
		{"a put that leaves at once", 0, onWindow(shm.OpPut, 7, 0, 8), "put", 0},
		{"its flush", 0, onWindow(shm.OpFlush, 8, 0, 0), "flush flushed", 0},
		{"a put beyond the end", 0, onWindow(shm.OpPut, 9, reachBytes-100, 101), "put", 0},
		{"its flush", 0, onWindow(shm.OpFlush, 10, 0, 0), "flush flushed", shm.StatusInvalid},
		{"a lock", 0, onWindow(shm.OpLock, 11, 0, 0), "lock locked", 0},
		{"its end", 0, onWindow(shm.OpUnlock, 12, 0, 0), "unlock flushed", 0},
		{"the end of the window", 1, onWindow(shm.OpWinFree, 13, 0, 0), "conceal concealed", 0},
		{"a put where there is none", 0, onWindow(shm.OpPut, 14, 0, 1000), "expose put exposed", 0},
		{"its flush", 0, onWindow(shm.OpFlush, 15, 0, 0), "flush flushed", shm.StatusInvalid},
	} {
		for k := range d.arena(0, 0)[:2000] {
			d.arena(0, 0)[k] = byte(i + k)
		}
		want := bytes.Clone(d.arena(0, 0)[:1000])
		d.submit(x.pod, x.d)
		if got := d.frames(); got != x.frames {
			t.Errorf("%s: %q, want %q", x.what, got, x.frames)
		}
		if req, status := d.last(x.pod); req != x.d.Req || status != x.status {
			t.Errorf("%s: request %d ended with %d, want %d with %d", x.what, req, status, x.d.Req, x.status)
		}
		if x.what == "another put" && !bytes.Equal(d.arena(1, 0)[500:1500], want) {
			t.Errorf("%s: its bytes are not there", x.what)
		}
	}
	if len(d.keys) != 0 {
		t.Errorf("%d registrations are left", len(d.keys))
	}
	s := d.cores[0].Stats()
	if s.RemotePut.Messages != 1 || s.RemoteGet.Messages != 1 || s.Accesses != 0 || d.cores[1].Stats().Exposed != 1 {
		t.Errorf("%+v", s)
	}
}

// known returns a duo whose rank 0 knows the window and has nothing to flush there.
func known(t *testing.T) *duo {
	t.Helper()
	d := reaching(t)
	d.submit(0, onWindow(shm.OpGet, 1, 0, 1))
	d.run()
	d.submit(0, onWindow(shm.OpFlush, 1, 0, 0))
	if got := d.frames(); got != "expose get exposed got flush flushed" {
		t.Fatal(got)
	}
	return d
}

// TestReachFails checks that a remote put that has failed is repeated by frames, before the
// flush that waits for it, and so is a get.
func TestReachFails(t *testing.T) {
	d := known(t)
	d.ports[0].refuse = 1
	d.submit(0, onWindow(shm.OpPut, 2, 0, 1000))
	d.submit(0, onWindow(shm.OpFlush, 3, 0, 0))
	d.submit(0, onWindow(shm.OpPut, 4, 1000, 1000))
	if got := d.frames(); got != "put flush flushed" {
		t.Errorf("%q: the flush is to be behind the put that it means", got)
	}
	if d.cores[0].Stats().RemotePut.Messages != 1 {
		t.Error("what came behind is to be put remotely again")
	}
	d.ports[0].refuse = 1
	d.submit(0, onWindow(shm.OpGet, 5, 0, 1000))
	if got := d.frames(); got != "get got" {
		t.Errorf("%q after a read that has failed", got)
	}
	for _, e := range d.ports[0].ended {
		if e.Status != shm.StatusOK {
			t.Errorf("request %d ended with status %d", e.Req, e.Status)
		}
	}
}

// TestFlushOfAllTellsOfMissingWindows: a put or an accumulate to a window that its target does
// not have ends the next flush of all ranks with an error, once, like a flush of that rank. If
// the error was reported already, or the access was valid, the flush succeeds.
func TestFlushOfAllTellsOfMissingWindows(t *testing.T) {
	for name, caps := range map[string]link.Caps{"by frames": {}, "by remote writes": {Register: true, Read: true, Write: true, InOrder: true}} {
		d := newDuo(t, rendezvous.Auto, caps)
		win := shm.Descriptor{Op: shm.OpWin, Req: 1, Class: shm.ClassArena, Context: reachWin}
		win.SetBody(0, reachBytes, 0, 0)
		d.submit(1, win)
		req := uint32(1)
		do := func(op shm.Op, context, peer uint32, want shm.Status) {
			t.Helper()
			req++
			x := onWindow(op, req, 0, 8)
			if x.Context, x.Peer = context, peer; op == shm.OpAcc {
				x.Class = shm.ClassArena
				x.SetBody(0, 8, 0, 0)
				x.Tag = uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum)
			}
			d.submit(0, x)
			d.frames()
			if got, status := d.last(0); got != req || status != want {
				t.Errorf("%s: operation %d on window %d of rank %d: request %d ended with %d, want %d with %d", name, op, context, int32(peer), got, status, req, want)
			}
		}
		const there, missing, all = reachWin, reachWin + 1, shm.AnySource
		for _, op := range []shm.Op{shm.OpPut, shm.OpAcc} {
			do(op, there, 1, 0)
			do(shm.OpFlush, there, all, 0)
			do(op, missing, 1, 0)
			do(shm.OpFlush, there, all, 0) // a flush of another window
			do(shm.OpFlush, missing, all, shm.StatusInvalid)
			do(op, there, 1, 0)
			do(shm.OpFlush, there, all, 0)
			do(op, missing, 1, 0)
			do(shm.OpFlush, missing, 1, shm.StatusInvalid)
			do(op, there, 1, 0) // an access to flush
			do(shm.OpFlush, there, all, 0)
		}
		for i := range uint32(64 + 1) {
			do(shm.OpPut, missing+i, 1, 0)
		}
		if n := d.cores[1].onesided.Open().Missed; n != 64 {
			t.Errorf("%s: %d accesses are kept", name, n)
		}
		do(shm.OpFlush, missing+64, all, shm.StatusInvalid)
	}
}

// TestReachRefused checks that an access that the target has refused is not tried again.
func TestReachRefused(t *testing.T) {
	d := known(t)
	clear(d.keys)
	d.submit(0, onWindow(shm.OpPut, 2, 0, 1000))
	if got := d.frames(); got != "put" {
		t.Errorf("%q", got)
	}
	d.submit(0, onWindow(shm.OpGet, 3, 0, 1000))
	if got := d.frames(); got != "get got" {
		t.Errorf("%q", got)
	}
}

// TestFreedWhileReached checks that a window's memory is given back to its rank when no peer
// writes to it any more, and not before.
func TestFreedWhileReached(t *testing.T) {
	d := known(t)
	d.submit(0, onWindow(shm.OpPut, 2, 0, 1000))
	d.cores[0].Flush(d.now, d.ports[0])
	kept := d.ports[0].later // the write is in flight
	d.ports[0].later = nil
	d.submit(1, onWindow(shm.OpWinFree, 3, 0, 0))
	if got := d.frames(); got != "conceal" || len(d.keys) != 1 {
		t.Fatalf("%q, %d registrations", got, len(d.keys))
	}
	if req, _ := d.last(1); req == 3 {
		t.Fatal("the window is free while it is written to")
	}
	d.submit(0, onWindow(shm.OpPut, 4, 0, 1000)) // discovers that the window is gone
	d.ports[0].later = append(d.ports[0].later, kept...)
	if got := d.frames(); got != "expose put concealed exposed" && got != "expose put exposed concealed" {
		t.Errorf("%q", got)
	}
	if req, status := d.last(1); req != 3 || status != shm.StatusOK || len(d.keys) != 0 {
		t.Errorf("request %d ended with %d; %d registrations", req, status, len(d.keys))
	}
}

// TestFreedWithTheDead checks that no request waits for a peer that is gone, or in a failed
// job.
func TestFreedWithTheDead(t *testing.T) {
	for name, end := range map[string]func(d *duo){
		"freed, then dead": func(d *duo) {
			d.submit(1, onWindow(shm.OpWinFree, 3, 0, 0))
			d.cores[1].LinkDown(d.now, 0, link.ErrProtocol)
		},
		"dead, then freed": func(d *duo) {
			d.cores[1].LinkDown(d.now, 0, link.ErrProtocol)
			d.submit(1, onWindow(shm.OpWinFree, 3, 0, 0))
		},
		"the rank is killed": func(d *duo) { d.cores[1].Detach(d.now, 0, errors.New("killed")) },
		"it has left without": func(d *duo) {
			d.submit(1, shm.Descriptor{Op: shm.OpDetach})
			d.run()
		},
	} {
		d := known(t)
		d.ports[0].later = nil
		end(d)
		if !strings.HasPrefix(name, "it has left") {
			d.cores[1].Detach(d.now, 0, errors.New("over"))
		}
		for d.cores[1].Advance(d.now) > 0 {
		}
		if len(d.keys) != 0 {
			t.Errorf("%s: %d registrations are left", name, len(d.keys))
		}
		if d.cores[1].sessions[0] != nil {
			t.Errorf("%s: the session's memory is held for ever", name)
		}
	}
}

// TestReachAllocatesNothing checks that a put and its flush allocate nothing.
func TestReachAllocatesNothing(t *testing.T) {
	d := known(t)
	c := d.cores[0]
	s := d.ports[0]
	s.still = true
	put, flush := onWindow(shm.OpPut, 2, 0, 1000), onWindow(shm.OpFlush, 3, 0, 0)
	if n := testing.AllocsPerRun(1000, func() {
		if c.Submit(d.now, 0, &put) != nil || c.Submit(d.now, 0, &flush) != nil {
			t.Fatal("refused")
		}
		c.RemoteDone(d.now, 1, s.token, nil)
		c.Flush(d.now, &s.lone)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := c.Stats(); s.RemotePut.Messages < 1000 || s.Accesses != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReachBegunByFrames: the window becomes known after a put has begun to send frames. The
// put continues by frames and ends with the last of them (seed 20064 of the simulator's jobs
// with the registration cache).
func TestReachBegunByFrames(t *testing.T) {
	const n = 900_000
	d := newDuo(t, rendezvous.Auto, link.Caps{Register: true, Read: true, Write: true, InOrder: true})
	win := shm.Descriptor{Op: shm.OpWin, Req: 1, Class: shm.ClassArena, Context: reachWin}
	win.SetBody(0, n, 0, 0)
	d.submit(1, win)
	d.submit(0, onWindow(shm.OpPut, 2, 0, n))
	if got := d.frames(); got != "expose put exposed put put put" {
		t.Errorf("%q", got)
	}
	if s := d.cores[0].Stats(); s.RemotePut.Messages != 0 || s.Accesses != 0 || len(d.ports[0].ended) != 1 {
		t.Errorf("%+v, %d ended", s, len(d.ports[0].ended))
	}
}

// TestReplacedConnectionIsBroken: the peer connects again before this side has noticed the end
// of the last connection, which is counted as broken like any other.
func TestReplacedConnectionIsBroken(t *testing.T) {
	c, err := New(Config{PodOf: []int32{0, 1}, Pods: 2}, &lone{regions: map[link.Region][]byte{}})
	if err != nil {
		t.Fatal(err)
	}
	caps := link.Caps{Name: "test"}
	c.LinkUp(1, 1, caps)
	c.LinkUp(2, 1, caps)
	c.LinkDown(3, 1, link.ErrBroken)
	c.LinkUp(4, 1, caps)
	if s := c.Stats(); s.Breaks != 2 || s.Reconnects != 2 {
		t.Errorf("%d connections broken, %d made again, want 2 and 2", s.Breaks, s.Reconnects)
	}
}
