package outrigger

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// exposing returns a session with a file that is not a device, and with memory that the
// session regards as exposed with number 2. Virtual machines test the kernel's part
// (e2e/rdmavm).
func exposing(t *testing.T) (s *Session, f *fake, mem []byte) {
	t.Helper()
	s, f = attachTo(t, shape{})
	mem = make([]byte, 1<<20)
	s.exposures = []*Exposed{nil, {s: s, number: 1, mem: mem[:1000], freed: true}, {s: s, number: 2, mem: mem}}
	return s, f, mem
}

// TestExposedMessage: a large message in exposed memory refers to it. Its chunks are supplied
// only when they are requested.
func TestExposedMessage(t *testing.T) {
	s, f, mem := exposing(t)
	buf := mem[100_000:300_000]
	for i := range buf {
		buf[i] = byte(i / 7)
	}
	r, err := Isend(s.World(), buf, 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpSend)
	if d.Class != shm.ClassExposed || d.Addr() != 2<<shm.ExposureShift|100_000 || d.Len() != 200_000 {
		t.Fatalf("%+v", d)
	}
	if again, ok := f.poll(); ok {
		t.Fatalf("%+v comes, and nothing was asked for", again)
	}
	f.tell(shm.Descriptor{Op: shm.OpDone, Req: d.Req})
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err = Isend(s.World(), buf, 1, 5); err != nil { // a message that the device does not read
		t.Fatal(err)
	}
	d = f.next(shm.OpSend)
	asked := shm.Descriptor{Op: shm.OpMatched, Req: d.Req}
	asked.SetBody(0, d.Len(), 0, 0)
	f.tell(asked)
	if _, over, err := r.Test(); over || err != nil {
		t.Fatal(over, err)
	}
	chunk := f.next(shm.OpStage)
	if got := f.memory(&chunk); chunk.Req != d.Req || string(got) != string(buf[:len(got)]) {
		t.Errorf("the first chunk is %+v, or its bytes are others", chunk)
	}
}

// TestExposedReceive: the device or chunks fill the buffer.
func TestExposedReceive(t *testing.T) {
	s, f, mem := exposing(t)
	r, err := Irecv(s.World(), mem[8:500_000], 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpRecv)
	if d.Class != shm.ClassExposed || d.Addr() != 2<<shm.ExposureShift|8 || d.Len() != 500_000-8 {
		t.Fatalf("%+v", d)
	}
	mem[8] = 42
	done := shm.Descriptor{Op: shm.OpDone, Req: d.Req, Peer: 1, Tag: 5}
	done.SetBody(0, 300_000, 0, 0)
	f.tell(done)
	if st, err := r.Wait(t.Context()); err != nil || st.Bytes != 300_000 || st.Source != 1 || mem[8] != 42 {
		t.Errorf("%+v, %v, first byte %d", st, err, mem[8])
	}
}

// TestPlainBesideExposed: a message that is not wholly within exposed memory, is no longer
// exposed, or fits into a slot is sent in the usual way.
func TestPlainBesideExposed(t *testing.T) {
	s, f, mem := exposing(t)
	for what, x := range map[string]struct {
		buf   []byte
		class shm.Class
	}{
		"other memory": {make([]byte, 100_000), shm.ClassStaged},
		"a small part": {mem[:5000], shm.ClassSlab},
		"all of it":    {mem, shm.ClassExposed},
	} {
		if _, err := Isend(s.World(), x.buf, 1, 5); err != nil {
			t.Fatal(err)
		}
		if d := f.next(shm.OpSend); d.Class != x.class {
			t.Errorf("%s goes as class %d, want %d", what, d.Class, x.class)
		}
		for { // chunks
			if _, ok := f.poll(); !ok {
				break
			}
		}
	}
}

// TestNotExposed: the error has the reason, and its name if there is one.
func TestNotExposed(t *testing.T) {
	s, _ := attachTo(t, shape{})
	s.device.why = "the job does not allow it"
	private := make([]byte, 100)
	_, err := Expose(t.Context(), s, private)
	if !errors.Is(err, ErrNotExposed) || !strings.Contains(err.Error(), s.device.why) {
		t.Error(err)
	}
	null, err := os.Open(os.DevNull) // a descriptor of a file that is not an RDMA device
	if err != nil {
		t.Fatal(err)
	}
	s.device.fd = int(null.Fd())
	if _, err = Expose(t.Context(), s, private); !errors.Is(err, ErrNotExposed) || !errors.Is(err, ErrDriver) {
		t.Error(err)
	}
	shared, err := Alloc[byte](s, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Expose(t.Context(), s, shared); !errors.Is(err, ErrNotExposed) || !errors.Is(err, errInAlloc) {
		t.Error(err)
	}
	s.device.fd = -1
	if err := null.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestExposuresAreBounded: an exposure above the limit of the protocol is not begun.
func TestExposuresAreBounded(t *testing.T) {
	s, f := attachTo(t, shape{})
	for i := range shm.MaxExposures {
		e := &Exposed{s: s}
		if err := s.numberExposed(e); err != nil || e.number != uint32(i) {
			t.Fatalf("number %d: %v", e.number, err)
		}
	}
	if err := s.numberExposed(&Exposed{s: s}); !errors.Is(err, ErrTooManyRequests) {
		t.Error(err)
	}
	s.exposures[7] = nil
	e := &Exposed{s: s, mem: make([]byte, 100)}
	if err := s.numberExposed(e); err != nil || e.number != 7 {
		t.Errorf("number %d, want the free one: %v", e.number, err)
	}
	over := make(chan error, 1)
	go func() { over <- s.announce(context.Background(), e) }()
	d := f.next(shm.OpExpose)
	if d.Len() != 100 || d.Aux() != 7 {
		t.Errorf("%+v", d)
	}
	f.tell(shm.Descriptor{Op: shm.OpDone, Req: d.Req, Status: shm.StatusUnsupported})
	if err := <-over; !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// TestExposeGivenUp: if the caller of an exposure returns before the sidecar answers, the
// exposure's number is not used again before the sidecar has removed it. A second exposure
// with that number would end the session.
func TestExposeGivenUp(t *testing.T) {
	s, f := attachTo(t, shape{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	e := &Exposed{s: s, mem: make([]byte, 100)}
	if err := s.numberExposed(e); err != nil {
		t.Fatal(err)
	}
	if err := s.announce(gone, e); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	expose := f.next(shm.OpExpose)
	other := &Exposed{s: s, mem: make([]byte, 100)}
	if err := s.numberExposed(other); err != nil || other.number == e.number {
		t.Fatalf("the number %d is used twice: %v", other.number, err)
	}
	f.tell(shm.Descriptor{Op: shm.OpDone, Req: expose.Req})
	progress(t, s)
	if at, ok := s.exposedAt(e.mem); ok {
		t.Errorf("messages use it, at %#x", at)
	}
	end := f.next(shm.OpUnexpose)
	if end.Aux() != uint64(e.number) {
		t.Errorf("number %d is to be forgotten, want %d", end.Aux(), e.number)
	}
	f.tell(shm.Descriptor{Op: shm.OpDone, Req: end.Req})
	progress(t, s)
	again := &Exposed{s: s, mem: make([]byte, 100)}
	if err := s.numberExposed(again); err != nil || again.number != e.number {
		t.Errorf("number %d, want %d, which is free: %v", again.number, e.number, err)
	}
	f.quiet()
}

// TestExposeRefused: a number that the sidecar has refused is free, and so is one that it has
// removed after its caller had returned.
func TestExposeRefused(t *testing.T) {
	s, f := attachTo(t, shape{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for what, x := range map[string]struct {
		op     shm.Op
		status shm.Status
		do     func(*Exposed) error
	}{
		"refused":   {shm.OpExpose, shm.StatusUnsupported, func(e *Exposed) error { return s.announce(gone, e) }},
		"forgotten": {shm.OpUnexpose, shm.StatusOK, func(e *Exposed) error { return s.forget(gone, e) }},
	} {
		e := &Exposed{s: s, mem: make([]byte, 100)}
		if err := s.numberExposed(e); err != nil || e.number != 0 {
			t.Fatalf("%s: number %d: %v", what, e.number, err)
		}
		if err := x.do(e); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", what, err)
		}
		d := f.next(x.op)
		f.tell(shm.Descriptor{Op: shm.OpDone, Req: d.Req, Status: x.status})
		progress(t, s)
		if s.exposures[0] != nil {
			t.Errorf("%s: the number is not free", what)
		}
		f.quiet()
	}
}

func progress(t *testing.T, s *Session) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.progress(); err != nil {
		t.Fatal(err)
	}
}
