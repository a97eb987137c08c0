package lu

// halo is the number of points of each neighbour that a rank stores in addition to
// its own, as many as the fourth-order dissipation reads.
const halo = 2

// geometry computes the index of a point in the slices of a rank: x runs along memory,
// then y, then z, with a halo around all of them. No result depends on the halo around
// z, but with it the stencils need no special case.
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
