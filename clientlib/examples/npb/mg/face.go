package mg

// A face is one layer of cells across an axis. Faces are exchanged axis by
// axis, and each includes the ghosts of the axes before it: this is how edges
// and corners arrive without separate messages.

// faceLen returns the number of values of a face.
func (f field) faceLen(axis int) int {
	switch axis {
	case 0:
		return f.n[1] * f.n[2]
	case 1:
		return f.width * f.n[2]
	default:
		return f.plane
	}
}

// pack copies the face at index i of the axis to buf.
func (f field) pack(axis, i int, buf []float64) {
	switch axis {
	case 0:
		o := 0
		for k := 1; k <= f.n[2]; k++ {
			for j := 1; j <= f.n[1]; j++ {
				buf[o] = f.v[f.at(j, k)+i]
				o++
			}
		}
	case 1:
		for k := 1; k <= f.n[2]; k++ {
			copy(buf[(k-1)*f.width:k*f.width], f.row(i, k))
		}
	default:
		copy(buf, f.v[i*f.plane:(i+1)*f.plane])
	}
}

// unpack copies buf to the face at index i of the axis.
func (f field) unpack(axis, i int, buf []float64) {
	switch axis {
	case 0:
		o := 0
		for k := 1; k <= f.n[2]; k++ {
			for j := 1; j <= f.n[1]; j++ {
				f.v[f.at(j, k)+i] = buf[o]
				o++
			}
		}
	case 1:
		for k := 1; k <= f.n[2]; k++ {
			copy(f.row(i, k), buf[(k-1)*f.width:k*f.width])
		}
	default:
		copy(f.v[i*f.plane:(i+1)*f.plane], buf)
	}
}

// wrap fills the ghosts of an axis that is not divided among ranks from the opposite
// faces.
func (f field) wrap(axis int) {
	last := f.n[axis]
	switch axis {
	case 0:
		for k := 1; k <= f.n[2]; k++ {
			for j := 1; j <= f.n[1]; j++ {
				row := f.row(j, k)
				row[0], row[last+1] = row[last], row[1]
			}
		}
	case 1:
		for k := 1; k <= f.n[2]; k++ {
			copy(f.row(0, k), f.row(last, k))
			copy(f.row(last+1, k), f.row(1, k))
		}
	default:
		copy(f.v[:f.plane], f.v[last*f.plane:])
		copy(f.v[(last+1)*f.plane:], f.v[f.plane:2*f.plane])
	}
}
