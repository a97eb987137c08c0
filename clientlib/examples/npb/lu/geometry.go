package lu

// halo is the number of points of the neighbours that a rank keeps beside its
// own, which the fourth-order dissipation reaches for.
const halo = 2

// geometry says where a point is in the slices of a rank: x runs along memory,
// then y, then z, with a halo around all of them. That around z is never used by
// a value that counts, but spares the stencils a case.
type geometry struct {
	strides [3]int
	points  int
}

func newGeometry(d domain) geometry {
	width := d.n[0] + 2*halo
	plane := width * (d.n[1] + 2*halo)
	return geometry{strides: [3]int{1, width, plane}, points: plane * (d.edge + 2*halo)}
}

func (g geometry) at(i, j, k int) int {
	return (k+halo)*g.strides[2] + (j+halo)*g.strides[1] + i + halo
}
