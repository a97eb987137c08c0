package ft

import "math"

// transform is the discrete Fourier transform of n points, a power of two, of
// many sequences at once. It is Stockham's form, which needs no reordering but a
// second array (C. Van Loan, "Computational Frameworks for the Fast Fourier
// Transform", SIAM 1992, section 1.7).
type transform struct {
	n       int
	roots   []complex128 // e^(−2πi·k/n) for k < n/2
	scratch []complex128
}

// newTransform returns a transform of n points of lanes sequences at once.
func newTransform(n, lanes int) *transform {
	t := &transform{n: n, roots: make([]complex128, n/2), scratch: make([]complex128, n*lanes)}
	for k := range t.roots {
		sin, cos := math.Sincos(-2 * math.Pi * float64(k) / float64(n))
		t.roots[k] = complex(cos, sin)
	}
	return t
}

// apply transforms data in place, without scaling: point i of sequence q is
// data[i·lanes+q]. The sign of the exponent is negative, or positive for inverse.
func (t *transform) apply(data []complex128, lanes int, inverse bool) {
	from, to := data, t.scratch[:len(data)]
	stride := lanes
	for n := t.n; n > 1; n /= 2 {
		half := n / 2
		for p := range half {
			w := t.roots[p*(t.n/n)]
			if inverse {
				w = complex(real(w), -imag(w))
			}
			butterflies(from[stride*p:][:stride], from[stride*(p+half):][:stride],
				to[stride*2*p:][:stride], to[stride*(2*p+1):][:stride], w)
		}
		from, to = to, from
		stride *= 2
	}
	if &from[0] != &data[0] {
		copy(data, from)
	}
}

// butterflies sets sum to a+b and difference to (a−b)·w.
func butterflies(a, b, sum, difference []complex128, w complex128) {
	b, sum, difference = b[:len(a)], sum[:len(a)], difference[:len(a)]
	wr, wi := real(w), imag(w)
	for q, x := range a {
		y := b[q]
		sum[q] = x + y
		d := x - y
		difference[q] = complex(real(d)*wr-imag(d)*wi, real(d)*wi+imag(d)*wr)
	}
}
