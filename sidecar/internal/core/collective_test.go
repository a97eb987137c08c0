package core

import (
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestHugeBlockIsNotCopied checks that a client that names its whole arena as the block of
// parameters is refused before the sidecar allocates a copy, for which it has no memory to
// spare.
func TestHugeBlockIsNotCopied(t *testing.T) {
	s := exposing(t)
	s.ports.Bytes(link.Ref{Region: RegionFirst + 1}) // the test's arena is made now
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena, Req: 1}
	d.SetBody(0, 1<<20, 0, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := s.core.Submit(2, 0, &d)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Error("the block is taken")
	}
	if n := after.TotalAlloc - before.TotalAlloc; n >= 1<<20 {
		t.Errorf("%d bytes were allocated to refuse it", n)
	}
}
