package mg

// The two 27-point operators of the benchmark. Both add the four neighbours of
// a column across and the four diagonal ones once and use the sums for the
// three columns they touch, as NPB does; that halves the additions, and the
// order of additions is what the published norms were computed with.

// columns is workspace for one row: for each position along the row, the sum of
// its 4 nearest and of its 4 diagonal neighbours in the plane across.
type columns struct{ near, diagonal []float64 }

func newColumns(width int) columns {
	return columns{near: make([]float64, width), diagonal: make([]float64, width)}
}

// gather fills the workspace around the row (j,k) of f.
func (c columns) gather(f field, j, k int) (near, diagonal []float64) {
	near, diagonal = c.near[:f.width], c.diagonal[:f.width]
	n := len(near)
	diagonal = diagonal[:n]
	south, north := f.row(j-1, k)[:n], f.row(j+1, k)[:n]
	below, above := f.row(j, k-1)[:n], f.row(j, k+1)[:n]
	southBelow, northBelow := f.row(j-1, k-1)[:n], f.row(j+1, k-1)[:n]
	southAbove, northAbove := f.row(j-1, k+1)[:n], f.row(j+1, k+1)[:n]
	for i := range near {
		near[i] = south[i] + north[i] + below[i] + above[i]
		diagonal[i] = southBelow[i] + northBelow[i] + southAbove[i] + northAbove[i]
	}
	return near, diagonal
}

// residual sets r = v − A·u in the rank's own cells (NPB's resid). v and r may
// be the same field. A's weight for face neighbours is zero and not applied.
func residual(u, v, r field, a stencil, work columns) {
	centre, edge, corner := a[0], a[2], a[3]
	for k := 1; k <= u.n[2]; k++ {
		for j := 1; j <= u.n[1]; j++ {
			near, diagonal := work.gather(u, j, k)
			n := len(near) - 2
			uRow, vRow, rRow := u.row(j, k)[1:][:n], v.row(j, k)[1:][:n], r.row(j, k)[1:][:n]
			near0, near2 := near[:n], near[2:][:n]
			diagonal0, diagonal1, diagonal2 := diagonal[:n], diagonal[1:][:n], diagonal[2:][:n]
			for i := range rRow {
				rRow[i] = vRow[i] - centre*uRow[i] -
					edge*(diagonal1[i]+near0[i]+near2[i]) -
					corner*(diagonal0[i]+diagonal2[i])
			}
		}
	}
}

// smooth adds S·r to u in the rank's own cells (NPB's psinv). The smoother's
// weight for corner neighbours is zero and not applied.
func smooth(r, u field, s stencil, work columns) {
	centre, face, edge := s[0], s[1], s[2]
	for k := 1; k <= u.n[2]; k++ {
		for j := 1; j <= u.n[1]; j++ {
			near, diagonal := work.gather(r, j, k)
			n := len(near) - 2
			uRow := u.row(j, k)[1:][:n]
			r0, r1, r2 := r.row(j, k)[:n], r.row(j, k)[1:][:n], r.row(j, k)[2:][:n]
			near0, near1, near2 := near[:n], near[1:][:n], near[2:][:n]
			diagonal1 := diagonal[1:][:n]
			for i := range uRow {
				uRow[i] = uRow[i] + centre*r1[i] +
					face*(r0[i]+r2[i]+near1[i]) +
					edge*(diagonal1[i]+near0[i]+near2[i])
			}
		}
	}
}
