package mg

// Transfers between a fine grid and the one with half its edge. Coarse cell c
// of an axis lies at fine index 2c, counted with ghosts, so that a rank's
// coarse cells depend on its own fine cells and one ghost only.

// restrict sets coarse to the weighted mean of fine around each coarse cell:
// half for the centre and half of that for each step away (NPB's rprj3). The
// ghosts of fine must be valid; those of coarse are not set.
func restrict(fine, coarse field, work columns) {
	for k := 1; k <= coarse.n[2]; k++ {
		for j := 1; j <= coarse.n[1]; j++ {
			near, diagonal := work.gather(fine, 2*j, 2*k)
			from := fine.row(2*j, 2*k)[:len(near)]
			diagonal = diagonal[:len(near)]
			to := coarse.row(j, k)
			for c, i := 1, 2; i < len(near)-1; c, i = c+1, i+2 {
				to[c] = 0.5*from[i] +
					0.25*(from[i-1]+from[i+1]+near[i]) +
					0.125*(near[i-1]+near[i+1]+diagonal[i]) +
					0.0625*(diagonal[i-1]+diagonal[i+1])
			}
		}
	}
}

// lifts is workspace for one coarse row: sums of it with its neighbouring rows.
type lifts struct{ north, above, corner []float64 }

func newLifts(width int) lifts {
	return lifts{make([]float64, width), make([]float64, width), make([]float64, width)}
}

// gather computes the sums of the coarse row (j,k) and the next row, of it and the row
// in the next plane, and of all four.
func (l lifts) gather(z field, j, k int) (north, above, corner []float64) {
	row := z.row(j, k)
	n := len(row)
	rowN, rowA, rowC := z.row(j+1, k)[:n], z.row(j, k+1)[:n], z.row(j+1, k+1)[:n]
	north, above, corner = l.north[:n], l.above[:n], l.corner[:n]
	for i, x := range row {
		north[i] = rowN[i] + x
		above[i] = rowA[i] + x
		corner[i] = rowC[i] + rowA[i] + north[i]
	}
	return north, above, corner
}

// interpolate adds the trilinear interpolation of z to the fine field u, ghosts
// included (NPB's interp). The ghosts of both must be valid before, and those of
// u are afterwards, since every rank computes the same value for a shared cell.
func interpolate(z, u field, work lifts) {
	for k := 0; k <= z.n[2]; k++ {
		for j := 0; j <= z.n[1]; j++ {
			north, above, corner := work.gather(z, j, k)
			spread(u.row(2*j, 2*k), z.row(j, k), 1)
			spread(u.row(2*j+1, 2*k), north, 0.5)
			spread(u.row(2*j, 2*k+1), above, 0.5)
			spread(u.row(2*j+1, 2*k+1), corner, 0.25)
		}
	}
}

// spread adds the coarse row z, times weight, to the fine row u: its values at even
// indices, and the mean of two neighbouring values at the odd indices between them.
func spread(u, z []float64, weight float64) {
	between := weight / 2
	left := z[0]
	for c, right := range z[1:] {
		pair := u[2*c:][:2]
		pair[0] += weight * left
		pair[1] += between * (right + left)
		left = right
	}
}
