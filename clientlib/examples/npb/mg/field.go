package mg

// field is one rank's part of a grid function, with one ghost cell around it:
// cell i of an axis with n cells is at index i+1, ghosts at 0 and n+1.
type field struct {
	n     triple
	width int // distance of rows: n[0]+2
	plane int // distance of planes: width·(n[1]+2)
	v     []float64
}

func newField(n triple) field {
	width := n[0] + 2
	plane := width * (n[1] + 2)
	return field{n: n, width: width, plane: plane, v: make([]float64, plane*(n[2]+2))}
}

// at returns the index in v of the row (j,k), ghosts included.
func (f field) at(j, k int) int { return k*f.plane + j*f.width }

// row returns the row (j,k) with its two ghosts.
func (f field) row(j, k int) []float64 {
	o := f.at(j, k)
	return f.v[o : o+f.width : o+f.width]
}

func (f field) zero() { clear(f.v) }

// sumSquares returns the sum of squares of the rank's own cells.
func (f field) sumSquares() float64 {
	sum := 0.0
	for k := 1; k <= f.n[2]; k++ {
		for j := 1; j <= f.n[1]; j++ {
			for _, x := range f.row(j, k)[1 : f.n[0]+1] {
				sum += x * x
			}
		}
	}
	return sum
}
