package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// timeout bounds the wait of a test for an event. No test measures against it.
const timeout = 20 * time.Second

// served runs an engine of one pod with real sessions, which sleeps when it can.
func served(t *testing.T, ranks int) (e *Engine, socket string) {
	t.Helper()
	return servedOver(t, ranks, local.New(0, nil), nil)
}

// servedOver does what served does, with a remote link, and with contexts for applications.
func servedOver(t *testing.T, ranks int, remote link.Link, open func() (link.Context, error)) (e *Engine, socket string) {
	t.Helper()
	loop := local.New(0, nil)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	begin := time.Now()
	e, err := New(Config{
		Core: core.Config{PodOf: make([]int32, ranks), Pods: 1}, Local: loop, Remote: remote, Dialer: noDialer{},
		Log: log, Wait: Wait{Yield: 1},
	}, func() int64 { return int64(time.Since(begin)) + 1 })
	if err != nil {
		t.Fatal(err)
	}
	loop.SetMemory(e)
	socket = filepath.Join(t.TempDir(), "s")
	srv, err := session.Listen(socket, session.Config{
		Ranks: uint32(ranks), Pods: 1, Count: uint32(ranks), ArenaBytes: 1 << 20, ArenaMax: 1 << 20, Geometry: segment.DefaultGeometry, Log: log, Open: open,
	}, e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	go func() { _ = srv.Serve(ctx) }() // until Close
	t.Cleanup(func() {
		err := srv.Close()
		cancel()
		<-ended
		if err := errors.Join(err, e.Close()); err != nil {
			t.Error(err)
		}
	})
	return e, socket
}

// join attaches a rank as an application would, and returns its doorbell.
func join(t *testing.T, socket string, rank int) (conn *net.UnixConn, doorbell int) {
	t.Helper()
	conn, fds := joinWith(t, socket, shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Rank: uint32(rank)})
	return conn, fds[2]
}

// joinWith attaches a rank with a given Hello, and returns all descriptors.
func joinWith(t *testing.T, socket string, h shm.Hello) (conn *net.UnixConn, fds []int) {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	if _, err := conn.Write(h.Encode()); err != nil {
		t.Fatal(err)
	}
	b, oob := make([]byte, shm.WelcomeBytes), make([]byte, unix.CmsgSpace(3*4))
	_, n, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		t.Fatalf("%d messages: %v", len(msgs), err)
	}
	fds, err = unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) < 3 {
		t.Fatalf("%d descriptors: %v", len(fds), err)
	}
	for _, fd := range fds {
		t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was written to it
	}
	return conn, fds
}

// TestBlockingDoorbell checks that the engine goes on when an application makes the
// doorbell, which it shares with the engine, a descriptor whose reads block.
func TestBlockingDoorbell(t *testing.T) {
	e, socket := served(t, 2)
	_, bell := join(t, socket, 0)
	if err := unix.SetNonblock(bell, false); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		for range 100 { // each ring finds the engine asleep, or about to sleep
			if _, err := e.View(); err != nil {
				answered <- err
				return
			}
		}
		answered <- nil
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(timeout):
		_ = unix.SetNonblock(bell, true) // the blocked read goes on blocking; the ring ends it
		_, _ = unix.Write(bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		t.Fatal("the engine does not answer: it reads the application's doorbell")
	}
}

// TestEveryRingEndsASleep checks that each ring wakes the engine although the doorbell is
// never read.
func TestEveryRingEndsASleep(t *testing.T) {
	s, err := newSleeper([2]link.Abilities{})
	if err != nil {
		t.Fatal(err)
	}
	bell, err := wake.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.watchBell(bell, 7); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if s.poll() > 0 {
			t.Errorf("ring %d: something ended the sleep before", i)
		}
		if err := wake.Ring(bell); err != nil {
			t.Fatal(err)
		}
		if s.sleep(0) != 1 || s.events[0].Pad != 7 {
			t.Errorf("ring %d ended no sleep", i)
		}
	}
	if err := errors.Join(s.close(), unix.Close(bell)); err != nil {
		t.Fatal(err)
	}
}

// TestLastDescriptors checks that the descriptors in an application's memory after its socket has
// closed are taken turn by turn, and no more of them than it can have published before.
func TestLastDescriptors(t *testing.T) {
	e, apps := pod(t, 2)
	closing(t, e)
	fill := func() {
		for {
			d := shm.Descriptor{Op: shm.OpCancel}
			ok, err := apps[0].submit.Push(&d)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
		}
	}
	fill()
	a := e.byRank[0]
	before := apps[0].submit.Pushed()
	e.SessionGone(a.Session)
	turns := 0
	for ; !a.closing; turns++ {
		if turns > 2*int(before)/intakeBatch {
			t.Fatalf("after %d turns the engine still takes what a session that has ended goes on to publish", turns)
		}
		e.Turn()
		if !a.closing {
			fill()
		}
	}
	if least := int(before) / intakeBatch; turns < least {
		t.Fatalf("%d descriptors were taken in %d turns, want at least %d: no application may hold up the others", before, turns, least)
	}
}

// TestCauseBeforeTheConsequence: a rank aborts, and its launcher kills a neighbour for
// that, whose end is noticed first. The abort, which is in the first rank's ring by then,
// names the cause.
func TestCauseBeforeTheConsequence(t *testing.T) {
	for _, behind := range []int{0, 2 * intakeBatch} { // descriptors in the ring before the abort
		e, apps := pod(t, 2)
		closing(t, e)
		for range behind {
			push(t, apps[1], &shm.Descriptor{Op: shm.OpCancel})
		}
		push(t, apps[1], &shm.Descriptor{Op: shm.OpAbort, Status: 3})
		ended := e.byRank[0]
		e.SessionGone(ended.Session)
		for range 8 {
			e.Turn()
		}
		switch f := e.Failure(); {
		case f == nil:
			t.Error("the job has not failed")
		case f.Rank != 1 || f.Code != 3:
			t.Errorf("behind %d descriptors: %v, want the abort of rank 1", behind, f)
		}
		if !ended.closing {
			t.Error("the session of rank 0 has not ended")
		}
	}
}

func push(t *testing.T, a *app, d *shm.Descriptor) {
	t.Helper()
	if ok, err := a.submit.Push(d); !ok || err != nil {
		t.Fatal("not submitted", err)
	}
}
