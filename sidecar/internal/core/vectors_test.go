package core

import (
	"encoding/binary"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/collective"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// vectored returns a core with one rank of a large job that has just called an alltoallv. Each
// count is 1 element of 8 bytes, for the rank itself.
func vectored(t testing.TB) (*Core, *lone) {
	t.Helper()
	const ranks = 20_000
	podOf := make([]int32, ranks)
	for i := range podOf[1:] {
		podOf[i+1] = 1
	}
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{Self: 0, PodOf: podOf, Pods: 2}, ports)
	if err != nil {
		t.Fatal(err)
	}
	arena := link.Ref{Region: RegionFirst + 1, Len: 4 << 20}
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, arena); err != nil {
		t.Fatal(err)
	}
	b := shm.CollBlock{Kind: shm.CollAlltoallv, Vectors: 4, Elem: 8, In: 3 << 20, InBytes: 8, Out: 3<<20 + 64, OutBytes: 8}
	mem := ports.Bytes(arena)
	b.Encode(mem)
	for _, v := range []int{0, 2} { // counts; displacements are 0
		binary.LittleEndian.PutUint64(mem[shm.CollBlockBytes+8*v*ranks:], 1)
	}
	d := &shm.Descriptor{Op: shm.OpColl, Req: 7, Class: shm.ClassArena}
	d.SetBody(0, shm.CollBlockBytes+4*8*ranks, 0, 0)
	if err := c.Submit(2, 0, d); err != nil {
		t.Fatal(err)
	}
	return c, ports
}

// TestVectorsComeInPieces checks that the counts of a large job are read over several turns.
// The rank's next descriptors wait meanwhile, WaitsOf names the collective, and the collective
// begins with the numbers that were read.
func TestVectorsComeInPieces(t *testing.T) {
	c, _ := vectored(t)
	before, turns := c.Effort(), 0
	for ; c.Held(0); turns++ {
		if w := c.WaitsOf(0); len(w.Oldest) != 1 || w.Oldest[0].Kind != WaitColl || w.Oldest[0].Number != 0 || len(w.Past) != 0 {
			t.Fatalf("it waits for %+v, after %+v", w.Oldest, w.Past)
		}
		if !c.Pending() {
			t.Fatal("vectors are left, and no turn is pending")
		}
		c.Advance(3)
		if n := c.Effort() - before; n > collective.AdvanceBytes {
			t.Fatalf("%d bytes in a turn", n)
		}
		before = c.Effort()
	}
	if turns < 5 {
		t.Errorf("%d bytes taken in %d turns", 4*8*20_000, turns)
	}
	for _, left := range []bool{false, true} { // also if the rank has left
		if left {
			c.Detach(4, 0, nil)
		}
		if w := c.WaitsOf(0); w.Left != left || len(w.Past) != 1 || w.Past[0].Number != 1 || w.Past[0].Count != 1 {
			t.Errorf("left %v: collectives have begun: %+v", left, w.Past)
		}
	}
}

// TestVectorsOfWhoLeaves: the application ends, or the job fails, while the counts are being
// read. No state of the collective is left.
func TestVectorsOfWhoLeaves(t *testing.T) {
	for name, end := range map[string]func(c *Core){
		"rank": func(c *Core) { c.Detach(4, 0, nil) },
		"job":  func(c *Core) { c.failJob(&Failure{Rank: 1, Code: 1, Reason: "a test"}) },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := vectored(t)
			c.Advance(3)
			end(c)
			for range 100 {
				c.Advance(5)
			}
			if c.Held(0) || c.Stats().Collectives != 0 {
				t.Errorf("held %v, %d collectives are left", c.Held(0), c.Stats().Collectives)
			}
			if s := c.sessions[0]; s != nil && s.Holds() != 0 {
				t.Errorf("%d holds are left", s.Holds())
			}
		})
	}
}
