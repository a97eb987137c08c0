package mg

import "context"

// hierarchy has one rank's part of the grids of a V-cycle: the grid of level l has edge
// 2^l. Levels below lo are on the coarse hierarchy if there is one; otherwise lo is 1.
type hierarchy struct {
	lo, hi   int
	u, r     []field // indexed by level
	smoother stencil
	ghosts   *ghosts
	columns  columns
	lifts    lifts
	coarse   *agglomeration // nil: this hierarchy has all levels down to 1
}

func newHierarchy(topo topology, lo, hi int, smoother stencil) *hierarchy {
	h := &hierarchy{lo: lo, hi: hi, smoother: smoother, u: make([]field, hi+1), r: make([]field, hi+1)}
	for l := lo; l <= hi; l++ {
		h.u[l], h.r[l] = newField(topo.local(1<<l)), newField(topo.local(1<<l))
	}
	h.columns, h.lifts = newColumns(h.u[hi].width), newLifts(h.u[hi].width)
	return h
}

// descend restricts the residual of the top level to all levels below.
func (h *hierarchy) descend(ctx context.Context) error {
	for l := h.hi; l > h.lo; l-- {
		restrict(h.r[l], h.r[l-1], h.columns)
		if err := h.ghosts.refresh(ctx, h.r[l-1]); err != nil {
			return err
		}
	}
	return nil
}

// bottom solves on the lowest level: by one smoothing, or on the hierarchy of
// the coarser levels.
func (h *hierarchy) bottom(ctx context.Context) error {
	if h.coarse != nil {
		return h.coarse.solve(ctx, h.r[h.lo], h.u[h.lo])
	}
	h.u[h.lo].zero()
	return h.relax(ctx, h.lo)
}

// relax smooths a level with its residual.
func (h *hierarchy) relax(ctx context.Context, level int) error {
	smooth(h.r[level], h.u[level], h.smoother, h.columns)
	return h.ghosts.refresh(ctx, h.u[level])
}

// ascend corrects the levels above the lowest up to top, each with the one
// below it.
func (h *hierarchy) ascend(ctx context.Context, top int) error {
	for l := h.lo + 1; l <= top; l++ {
		h.u[l].zero()
		if err := h.correct(ctx, l, h.r[l]); err != nil {
			return err
		}
	}
	return nil
}

// correct adds the correction of the level below to u, and smooths with the residual
// against v that remains.
func (h *hierarchy) correct(ctx context.Context, level int, v field) error {
	interpolate(h.u[level-1], h.u[level], h.lifts)
	if err := h.residual(ctx, level, v); err != nil {
		return err
	}
	return h.relax(ctx, level)
}

// residual sets r = v − A·u on a level, ghosts included.
func (h *hierarchy) residual(ctx context.Context, level int, v field) error {
	residual(h.u[level], v, h.r[level], laplacian, h.columns)
	return h.ghosts.refresh(ctx, h.r[level])
}

// cycle improves u on the top level by one V-cycle, given its residual against
// v (NPB's mg3P).
func (h *hierarchy) cycle(ctx context.Context, v field) error {
	if err := h.descend(ctx); err != nil {
		return err
	}
	if err := h.bottom(ctx); err != nil {
		return err
	}
	if err := h.ascend(ctx, h.hi-1); err != nil {
		return err
	}
	return h.correct(ctx, h.hi, v)
}
