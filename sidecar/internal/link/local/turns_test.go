package local

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// common is memory in which all ranges are the same bytes; it counts the bytes accessed.
type common struct {
	mem     []byte
	touched uint64
}

func (c *common) Bytes(r link.Ref) []byte {
	c.touched += r.Len
	return c.mem[:r.Len]
}

// ends records the tokens of operations in the order of their ends.
type ends struct {
	link.Sink
	tokens []uint64
	bytes  uint64
	frames int
}

func (e *ends) Done(_ link.Peer, token uint64, _ error) { e.tokens = append(e.tokens, token) }
func (e *ends) Deliver(_ link.Peer, h *wire.Header, _ []byte) error {
	e.bytes += uint64(h.Length)
	e.frames++
	return nil
}

// TestOperationsTakeTurns checks that a session with many large operations gets no more
// of a Poll than a session with a small one, and that its oldest operations end first.
func TestOperationsTakeTurns(t *testing.T) {
	m := &common{mem: make([]byte, 1<<20)}
	l := New(0, m)
	const large, small, many = 512 << 20, 100 << 10, 1000
	k, err := l.Register(link.Ref{Region: 9, Len: large})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(many) {
		if err := l.Read(0, i, link.Ref{Region: 1, Len: large}, k); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Write(0, many, link.Ref{Region: 2, Len: small}, k, 0); err != nil {
		t.Fatal(err)
	}
	e := &ends{}
	polls := 0
	for len(e.tokens) == 0 {
		polls++
		m.touched = 0
		if l.Poll(e) == 0 {
			t.Fatal("nothing moves")
		}
		if m.touched > 2*(perPoll+link.PieceMax) {
			t.Fatalf("one Poll touches %d bytes", m.touched)
		}
	}
	if e.tokens[0] != many || polls > 2 {
		t.Errorf("operation %d ends first, after %d polls; want the small one after 2 at most", e.tokens[0], polls)
	}
}

// TestOldestEndFirst checks that few of one session's operations move at a time, oldest
// first, and that all end.
func TestOldestEndFirst(t *testing.T) {
	l := New(0, &common{mem: make([]byte, 1<<20)})
	k, err := l.Register(link.Ref{Region: 9, Len: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	const many, few = 500, 4
	for i := range uint64(many) {
		if err := l.Read(0, i, link.Ref{Region: 1, Len: 1 << 20}, k); err != nil {
			t.Fatal(err)
		}
	}
	e := &ends{}
	for l.Poll(e) > 0 {
	}
	if len(e.tokens) != many {
		t.Fatalf("%d of %d operations ended", len(e.tokens), many)
	}
	for i, token := range e.tokens {
		if token > uint64(i+few) || token+few < uint64(i) {
			t.Fatalf("operation %d ended as number %d", token, i)
		}
	}
}

// TestFramesAreBounded checks that large frames fill the queue early, and that a Poll
// delivers a bounded part of it.
func TestFramesAreBounded(t *testing.T) {
	l := New(0, &common{mem: make([]byte, 1<<20)})
	f := &link.Frame{Head: wire.Header{Type: wire.Acc, Length: 64 << 10}, Payload: link.Ref{Region: 1, Len: 64 << 10}}
	var frames []*link.Frame
	for range 1000 {
		frames = append(frames, f)
	}
	e := &ends{}
	for posted := 0; posted < len(frames); {
		n := l.Post(0, frames[posted:])
		if n == 0 || uint64(n)*uint64(f.Head.Length) > perPoll/2+uint64(f.Head.Length) {
			t.Fatalf("%d frames accepted at once", n)
		}
		posted += n
		e.bytes = 0
		if l.Poll(e); e.bytes > perPoll+uint64(f.Head.Length) {
			t.Fatalf("%d bytes delivered in one Poll", e.bytes)
		}
	}
	for l.Poll(e) > 0 {
	}
	if e.frames != len(frames) {
		t.Errorf("%d of %d frames were delivered", e.frames, len(frames))
	}
}

// TestForgottenOperationsEnd checks that operations in flight end when their connection
// is forgotten, as on every link, so that the core releases their memory.
func TestForgottenOperationsEnd(t *testing.T) {
	l := New(0, &common{mem: make([]byte, 1<<20)})
	k, err := l.Register(link.Ref{Region: 9, Len: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	e := &ends{}
	for token := range uint64(3) {
		if err := l.Read(0, token, link.Ref{Region: 5 + link.Region(token%2), Len: 1 << 30}, k); err != nil {
			t.Fatal(err)
		}
	}
	l.Poll(e)
	l.Forget(0)
	for range 3 {
		l.Poll(e)
	}
	if len(e.tokens) != 3 {
		t.Errorf("operations %v have ended, want 3", e.tokens)
	}
}
