package mg

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// ghosts refreshes the ghost cells of a field on any level (NPB's comm3). With
// two ranks along an axis both neighbours are the same rank, so the direction
// of a face is in its tag.
type ghosts struct {
	comm *outrigger.Comm
	topo topology
	// Arena memory for the largest face, two to send and two to receive:
	// index 0 is sent up the axis, index 1 down.
	out, in [2][]float64
	reqs    [4]outrigger.Request
}

// newGhosts allocates buffers for the faces of largest, the largest field. A topology
// of one rank needs no communicator.
func newGhosts(comm *outrigger.Comm, topo topology, largest field, arena *bench.Arena) (*ghosts, error) {
	g := &ghosts{comm: comm, topo: topo}
	n := 0
	for axis, ranks := range topo.ranks {
		if ranks > 1 {
			n = max(n, largest.faceLen(axis))
		}
	}
	if n == 0 {
		return g, nil
	}
	for way := range g.out {
		var err error
		if g.out[way], err = bench.Buffer[float64](arena, n, "faces to send"); err != nil {
			return nil, err
		}
		if g.in[way], err = bench.Buffer[float64](arena, n, "faces to receive"); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// refresh is collective over the ranks of the topology.
func (g *ghosts) refresh(ctx context.Context, f field) error {
	for axis, ranks := range g.topo.ranks {
		if ranks == 1 {
			f.wrap(axis)
			continue
		}
		if err := g.trade(ctx, f, axis); err != nil {
			return fmt.Errorf("exchanging faces across axis %d of a %v grid: %w", axis, f.n, err)
		}
	}
	return nil
}

// trade sends both faces of an axis to the neighbours and receives theirs.
func (g *ghosts) trade(ctx context.Context, f field, axis int) error {
	n, last := f.faceLen(axis), f.n[axis]
	f.pack(axis, last, g.out[0][:n])
	f.pack(axis, 1, g.out[1][:n])
	neighbours := [2]int{g.topo.neighbour(axis, +1), g.topo.neighbour(axis, -1)}
	for way := range neighbours {
		tag := 2*axis + way
		var err error
		// The face that is sent up the axis is received from the rank below.
		if g.reqs[way], err = outrigger.Irecv(g.comm, g.in[way][:n], neighbours[1-way], tag); err != nil {
			return err
		}
		if g.reqs[2+way], err = outrigger.Isend(g.comm, g.out[way][:n], neighbours[way], tag); err != nil {
			return err
		}
	}
	if err := outrigger.WaitAll(ctx, g.reqs[:]); err != nil {
		return err
	}
	f.unpack(axis, 0, g.in[0][:n])
	f.unpack(axis, last+1, g.in[1][:n])
	return nil
}
