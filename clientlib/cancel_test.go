package outrigger

import (
	"context"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestResultBeatsContext: a result that arrived before the context ended is returned to the
// caller.
func TestResultBeatsContext(t *testing.T) {
	s, f := attachTo(t, shape{})
	r, err := Irecv(s.World(), make([]byte, 100), 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	f.done(f.next(shm.OpRecv).Req, shm.StatusTruncated, 4096)
	settle(t, s)
	if _, err := r.await(ended(t)); !errors.Is(err, ErrTruncated) {
		t.Fatalf("got %v, want ErrTruncated", err)
	}
}

func TestMatchedProbeBeatsContext(t *testing.T) {
	s, f := attachTo(t, shape{})
	ctx, cancel := context.WithCancel(t.Context())
	wait := f.answering(func() {
		d := f.next(shm.OpMprobe)
		cancel()
		f.next(shm.OpCancel)
		hit := shm.Descriptor{Op: shm.OpDone, Req: d.Req, Peer: 2, Tag: 9}
		hit.SetBody(0, 77, 5, 0)
		f.tell(hit)
	})
	m, err := s.World().Mprobe(ctx, AnySource, AnyTag)
	wait()
	if want := (Status{Source: 2, Tag: 9, Bytes: 77}); err != nil || m.Status() != want {
		t.Fatalf("the message is lost: %v, %v", m.Status(), err)
	}
}

// TestAbandonedMatchedProbeDropsMessage: if the caller of a matched probe has returned, the
// message that the probe claims is dropped, because no receive will match it.
func TestAbandonedMatchedProbeDropsMessage(t *testing.T) {
	s, f := attachTo(t, shape{})
	r, err := s.World().startProbe(t.Context(), "mprobe", shm.OpMprobe, 0, AnySource, AnyTag)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpMprobe)
	if err := r.abandon(); err != nil {
		t.Fatal(err)
	}
	hit := shm.Descriptor{Op: shm.OpDone, Req: d.Req, Peer: 2, Tag: 9}
	hit.SetBody(0, 77, 5, 0)
	f.tell(hit)
	settle(t, s)
	if d := f.next(shm.OpDrop); d.Aux() != 5 {
		t.Fatalf("message %d was dropped, want 5", d.Aux())
	}
}

// TestAbandonedLockIsGivenBack: a lock that is granted after its caller has returned is
// released, because no other rank could get it otherwise.
func TestAbandonedLockIsGivenBack(t *testing.T) {
	s, f := attachTo(t, shape{})
	w := &Window[byte]{comm: s.World(), number: 9}
	ctx, cancel := context.WithCancel(t.Context())
	var req uint32
	wait := f.answering(func() {
		req = f.next(shm.OpLock).Req
		cancel()
	})
	err := w.Lock(ctx, 1, true)
	wait()
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	f.done(req, shm.StatusOK, 0)
	settle(t, s)
	d := f.next(shm.OpUnlock)
	if d.Context != 9 || d.Peer != 1 {
		t.Fatalf("unlocked window %d of rank %d, want 9 of 1", d.Context, d.Peer)
	}
	f.done(d.Req, shm.StatusOK, 0)
	settle(t, s)
	if s.ops.list[d.Req].open {
		t.Fatal("the unlock's request number is not given back")
	}
}

// TestAbandonedOperationKeepsItsMemory: memory that an abandoned operation has lent to the
// engine is returned when the operation ends, and not before.
func TestAbandonedOperationKeepsItsMemory(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Session) error{
		"window": func(ctx context.Context, s *Session) error {
			w := &Window[byte]{comm: s.World(), number: 9}
			return w.Get(ctx, make([]byte, 1000), 1, 0)
		},
		"collective": func(ctx context.Context, s *Session) error { return s.World().Barrier(ctx) },
		"communicator": func(ctx context.Context, s *Session) error {
			return (&Comm{session: s, context: 5, group: newGroup([]uint32{0})}).announce(ctx, "split", shm.Descriptor{}, []byte{0, 0, 0, 0})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := attachTo(t, shape{})
			before := arenaInUse(s)
			ctx, cancel := context.WithCancel(t.Context())
			var req uint32
			wait := f.answering(func() {
				d, ok := f.poll()
				for ; !ok; d, ok = f.poll() {
					continue
				}
				req = d.Req
				cancel()
			})
			err := call(ctx, s)
			wait()
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if arenaInUse(s) == before {
				t.Fatal("the memory was given back while the engine may write to it")
			}
			f.done(req, shm.StatusOK, 1000)
			settle(t, s)
			if n := arenaInUse(s); n != before {
				t.Fatalf("%d bytes leaked", n-before)
			}
		})
	}
}

// TestAbandonedReceiveLeavesBufferAlone: an abandoned receive does not write to its caller's
// memory any more, but still receives the rest of its message.
func TestAbandonedReceiveLeavesBufferAlone(t *testing.T) {
	s, f := attachTo(t, shape{})
	buf := make([]byte, 100<<10)
	r, err := Irecv(s.World(), buf, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpRecv)
	if err := r.abandon(); err != nil {
		t.Fatal(err)
	}
	matched := shm.Descriptor{Op: shm.OpMatched, Req: d.Req, Peer: 1, Tag: 1}
	matched.SetBody(0, uint64(len(buf)), 0, 0)
	f.tell(matched)
	settle(t, s)
	for off := uint64(0); off < uint64(len(buf)); {
		k := f.next(shm.OpStage)
		for i := range f.memory(&k) {
			f.memory(&k)[i] = 0xff
		}
		f.returnBlock(&k, k.Len(), off)
		off += k.Len()
		settle(t, s)
	}
	f.done(d.Req, shm.StatusOK, uint64(len(buf)))
	settle(t, s)
	for i, b := range buf {
		if b != 0 {
			t.Fatalf("byte %d was written", i)
		}
	}
}

func TestAbandonedArenaBufferIsNamed(t *testing.T) {
	s, f := attachTo(t, shape{})
	buf, err := Alloc[byte](s, 100<<10)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Irecv(s.World(), buf, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpRecv)
	if err := r.abandon(); err == nil || !contains(err, "irecv") || !contains(err, "stays in use") {
		t.Fatalf("got %v", err)
	}
}
