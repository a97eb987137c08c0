package rendezvous

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestWritesAreBounded checks that a receiver that asks for a message byte by byte has a
// bounded number of writes in flight.
func TestWritesAreBounded(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 1 << 20}
	s := Source{Total: mem.Len, Mem: mem}
	caps := link.Caps{Register: true, Write: true}
	off := uint64(0)
	ask := func() error {
		step, err := s.Pulled(caps, targetRequest, &wire.PullBody{Offset: off, Bytes: 1, Key: targetKey})
		if err == nil && step.Do == Write {
			s.Writing()
			off++
		}
		return err
	}
	for range pullLimit {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	s.Ended()
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err == nil {
		t.Fatalf("%d writes are in flight", off-1)
	}
}

// TestLateFailure checks the failure of a part that the receiver has nevertheless, after
// it has asked for the next part, which fails as well: only the next part is asked for
// again.
func TestLateFailure(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 100}
	s := Source{Total: mem.Len, Mem: mem}
	caps := link.Caps{Register: true, Write: true}
	pull := func(off, n, key uint64) Step {
		t.Helper()
		step, err := s.Pulled(caps, targetRequest, &wire.PullBody{Offset: off, Bytes: n, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	pull(0, 40, targetKey)
	s.Writing()
	pull(40, 40, targetKey)
	s.Writing()
	s.WriteFailed(40)
	s.WriteFailed(0)
	if step := pull(40, 60, 0); step.Do != Flow {
		t.Fatalf("does %d, want %d", step.Do, Flow)
	}
	if off, n := s.Next(1000); off != 40 || n != 60 {
		t.Fatalf("%d bytes at %d follow, want 60 at 40", n, off)
	}
	target := Target{Want: 100, Total: 100, Mem: mem, partMax: 40}
	target.nextPart()
	target.Registered(link.Key{Key: targetKey})
	if step, err := target.Written(); err != nil || step.Do != Register {
		t.Fatalf("does %d, %v", step.Do, err)
	}
	if step, err := target.Unwritten(0); err != nil || step.Do != Nothing {
		t.Fatalf("of a part that has arrived: does %d, %v", step.Do, err)
	}
	if _, err := target.Unwritten(99); err == nil {
		t.Fatal("the failure of a part that was not asked for")
	}
}

// TestAskedAgain checks that after a failed write only the bytes that are asked for again
// are sent, even if the receiver had asked for more before.
func TestAskedAgain(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 100}
	s := Source{Total: mem.Len, Mem: mem}
	for i, b := range []wire.PullBody{{Bytes: 10, Key: targetKey}, {Offset: 10, Bytes: 10}, {Offset: 20, Bytes: 10}, {Bytes: 5}} {
		step, err := s.Pulled(link.Caps{Register: true, Write: true}, targetRequest, &b)
		if err != nil {
			t.Fatal(err)
		}
		if step.Do == Write {
			s.Writing()
		}
		if i == 2 {
			s.WriteFailed(0)
		}
	}
	if off, n := s.Next(1000); off != 0 || n != 5 {
		t.Errorf("%d bytes at %d follow, want 5 at 0", n, off)
	}
}
