package local

import (
	"bytes"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// over returns a link that offloads to copies, with its memory.
func over(t *testing.T, copies *copyeng.Copies) (*Link, *linktest.Memory) {
	t.Helper()
	m := linktest.NewMemory()
	l := New(0, m)
	l.SetCopies(copies)
	t.Cleanup(func() {
		if err := errors.Join(copies.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return l, m
}

// outcomes records how operations ended.
type outcomes struct {
	link.Sink
	errs  []error
	order []uint64
}

func (o *outcomes) Done(_ link.Peer, token uint64, err error) {
	o.errs, o.order = append(o.errs, err), append(o.order, token)
}
func (o *outcomes) Written(link.Peer, uint64) {}

// regions makes a source with a pattern, registered, and a destination.
func regions(t *testing.T, l *Link, m *linktest.Memory, n int) (src, dst link.Ref, k link.Key) {
	t.Helper()
	src, dst = m.NewRegion(n), m.NewRegion(n)
	for i := range m.Bytes(src) {
		m.Bytes(src)[i] = byte(i*7 + i>>12)
	}
	k, err := l.Register(src)
	if err != nil {
		t.Fatal(err)
	}
	return src, dst, k
}

func read(t *testing.T, l *Link, token uint64, dst link.Ref, k link.Key) {
	t.Helper()
	if err := l.Read(0, token, dst, k); err != nil {
		t.Fatal(err)
	}
}

// TestEngineCopiesNoByte checks that the engine's thread copies no byte of a large message,
// and all of a small one.
func TestEngineCopiesNoByte(t *testing.T) {
	copies := copyengtest.Copies(t, 1)
	l, m := over(t, copies)
	src, dst, k := regions(t, l, m, 4<<20)
	o := &outcomes{}
	for read(t, l, 1, dst, k); len(o.errs) == 0; {
		l.Poll(o)
	}
	if o.errs[0] != nil || !bytes.Equal(m.Bytes(src), m.Bytes(dst)) {
		t.Fatalf("the read ended with %v, or brought other bytes", o.errs[0])
	}
	if s := copies.Stats(); s.Inline != 0 || s.Offloaded != src.Len {
		t.Errorf("the engine has copied %d bytes of %d, and the thread %d", s.Inline, src.Len, s.Offloaded)
	}
	const little = copyengtest.Least - 1
	for read(t, l, 2, dst.Slice(0, little), k); len(o.errs) == 1; {
		l.Poll(o)
	}
	if s := copies.Stats(); s.Inline != little || s.Offloaded != src.Len {
		t.Errorf("of a small message, the engine has copied %d bytes, and the thread %d", s.Inline, s.Offloaded-src.Len)
	}
}

// TestFailingChannel checks that nothing is lost if the channel fails in the middle, and that
// copies are inline from then on.
func TestFailingChannel(t *testing.T) {
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: &copyengtest.Failing{Left: 21}}} })
	l, m := over(t, copies)
	src, dst, k := regions(t, l, m, 4<<20)
	o := &outcomes{}
	other := m.NewRegion(4 << 20)
	read(t, l, 1, dst, k)
	read(t, l, 2, other, k)
	for len(o.errs) < 2 {
		l.Poll(o)
	}
	for i, d := range []link.Ref{dst, other} {
		if o.errs[i] != nil || !bytes.Equal(m.Bytes(src), m.Bytes(d)) {
			t.Errorf("read %d ended with %v, or brought other bytes", i+1, o.errs[i])
		}
	}
	if s := copies.Stats(); s.Fallbacks == 0 || s.Offloaded != 21*link.PieceMax || s.Inline != 2*src.Len-s.Offloaded || copies.Alive() {
		t.Errorf("%d pieces failed, %d bytes were offloaded, %d copied inline; the channel is used: %v", s.Fallbacks, s.Offloaded, s.Inline, copies.Alive())
	}
}

// stalled is a channel whose copies end when the test says so.
type stalled struct {
	copyeng.CPU
	on   bool
	most int
}

func (s *stalled) Submit(dst, src []byte, token uint64) bool {
	ok := s.CPU.Submit(dst, src, token)
	s.most = max(s.most, s.Pending())
	return ok
}

func (s *stalled) Poll(done func(uint64, error)) int {
	if s.on {
		return 0
	}
	return s.CPU.Poll(done)
}

// TestOthersAreServed checks that a channel that is busy with large messages of one session
// delays neither small messages, nor for long a large one of another session.
func TestOthersAreServed(t *testing.T) {
	channel := &stalled{on: true}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	l, m := over(t, copies)
	_, dst, k := regions(t, l, m, 16<<20)
	other := m.NewRegion(1 << 20)
	o := &outcomes{}
	const large = 10
	for i := range uint64(large) {
		read(t, l, i, dst, k)
	}
	l.Poll(o)
	read(t, l, large, other.Slice(0, 1000), k)
	if l.Poll(o); len(o.order) != 1 || o.order[0] != large {
		t.Fatalf("a small message behind a busy channel: %v have ended", o.order)
	}
	read(t, l, large+1, other, k)
	channel.on = false
	for len(o.order) == 1 {
		l.Poll(o)
	}
	if o.order[1] != large+1 {
		t.Errorf("message %d ends before the one of another session, of a sixteenth of its size", o.order[1])
	}
	if channel.most > copyeng.Window {
		t.Errorf("%d pieces were pending, want %d at most", channel.most, copyeng.Window)
	}
}

// TestForgottenPiecesEndFirst checks that a forgotten operation ends when the channel does
// not access its memory any more, and not before.
func TestForgottenPiecesEndFirst(t *testing.T) {
	channel := &stalled{on: true}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	l, m := over(t, copies)
	_, dst, k := regions(t, l, m, 2<<20)
	o := &outcomes{}
	read(t, l, 1, dst, k)
	read(t, l, 2, dst, k)
	l.Poll(o)
	l.Forget(0)
	for range 100 {
		if l.Poll(o); len(o.errs) > 0 {
			t.Fatalf("%d of two operations have ended, and pieces of both are pending", len(o.errs))
		}
	}
	channel.on = false
	for len(o.errs) < 2 {
		l.Poll(o)
	}
	for _, err := range o.errs {
		if !errors.Is(err, link.ErrBroken) {
			t.Errorf("a forgotten operation ended with %v, want ErrBroken", err)
		}
	}
}
