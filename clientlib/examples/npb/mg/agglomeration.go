package mg

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// agglomeration solves the levels on which some ranks would have no cells: every rank
// gathers the whole grid and computes the remaining levels itself. It is not needed up
// to eight ranks. With more, NPB uses fewer and fewer ranks instead; here one
// collective replaces that.
type agglomeration struct {
	comm  *outrigger.Comm
	topo  topology
	whole *hierarchy
	// Arena memory: this rank's cells, and every rank's in rank order.
	mine, all []float64
}

func newAgglomeration(comm *outrigger.Comm, arena *bench.Arena, topo topology, level int, smoother stencil) (*agglomeration, error) {
	a := &agglomeration{comm: comm, topo: topo, whole: newHierarchy(alone(), 1, level, smoother)}
	a.whole.ghosts = &ghosts{topo: alone()}
	cells := 1 << (3 * level)
	var err error
	if a.mine, err = bench.Buffer[float64](arena, cells/comm.Size(), "coarse cells"); err != nil {
		return nil, err
	}
	if a.all, err = bench.Buffer[float64](arena, cells, "coarse grid"); err != nil {
		return nil, err
	}
	return a, nil
}

// solve is collective. It replaces the levels up to r's: it sets u, ghosts included, to
// the correction for the residual r.
func (a *agglomeration) solve(ctx context.Context, r, u field) error {
	h := a.whole
	packCells(r, a.mine)
	if err := outrigger.Allgather(ctx, a.comm, a.mine, a.all); err != nil {
		return fmt.Errorf("gathering the coarse grid: %w", err)
	}
	block := len(a.mine)
	for rank := range a.comm.Size() {
		origin := a.topo.origin(a.topo.place(rank), 1<<h.hi)
		unpackCells(h.r[h.hi], origin, r.n, a.all[rank*block:(rank+1)*block])
	}
	if err := h.ghosts.refresh(ctx, h.r[h.hi]); err != nil {
		return err
	}
	if err := h.descend(ctx); err != nil {
		return err
	}
	if err := h.bottom(ctx); err != nil {
		return err
	}
	if err := h.ascend(ctx, h.hi); err != nil {
		return err
	}
	cut(h.u[h.hi], a.topo.origin(a.topo.at, 1<<h.hi), u)
	return nil
}

// packCells copies the rank's own cells to buf.
func packCells(f field, buf []float64) {
	for k := 1; k <= f.n[2]; k++ {
		for j := 1; j <= f.n[1]; j++ {
			buf = buf[copy(buf, f.row(j, k)[1:f.n[0]+1]):]
		}
	}
}

// unpackCells copies a packed block of n cells to its position in whole.
func unpackCells(whole field, origin, n triple, buf []float64) {
	for k := range n[2] {
		for j := range n[1] {
			row := whole.row(origin[1]+j+1, origin[2]+k+1)
			buf = buf[copy(row[origin[0]+1:][:n[0]], buf):]
		}
	}
}

// cut copies the block at origin, with the cells around it, from whole to part.
func cut(whole field, origin triple, part field) {
	for k := range part.n[2] + 2 {
		for j := range part.n[1] + 2 {
			copy(part.row(j, k), whole.row(origin[1]+j, origin[2]+k)[origin[0]:])
		}
	}
}
