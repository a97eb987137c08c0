package ft

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"
)

// defined computes the transform by its definition, in n² steps.
func defined(in []complex128, sign float64) []complex128 {
	out := make([]complex128, len(in))
	for k := range out {
		for i, x := range in {
			sin, cos := math.Sincos(sign * 2 * math.Pi * float64(i*k%len(in)) / float64(len(in)))
			out[k] += x * complex(cos, sin)
		}
	}
	return out
}

func TestTransformIsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 128; n *= 2 {
		for _, lanes := range []int{1, 3} {
			data := make([]complex128, n*lanes)
			for i := range data {
				data[i] = complex(r.Float64()-0.5, r.Float64()-0.5)
			}
			for _, inverse := range []bool{false, true} {
				sign := -1.0
				if inverse {
					sign = 1
				}
				got := append([]complex128(nil), data...)
				newTransform(n, lanes).apply(got, lanes, inverse)
				for lane := range lanes {
					in := make([]complex128, n)
					for i := range in {
						in[i] = data[i*lanes+lane]
					}
					for i, want := range defined(in, sign) {
						if cmplx.Abs(got[i*lanes+lane]-want) > 1e-12*float64(n) {
							t.Fatalf("n=%d lanes=%d inverse=%v: point %d of lane %d is %v, want %v", n, lanes, inverse, i, lane, got[i*lanes+lane], want)
						}
					}
				}
			}
		}
	}
}

func TestInverseUndoesForward(t *testing.T) {
	const n, lanes = 64, 5
	data := make([]complex128, n*lanes)
	for i := range data {
		data[i] = complex(float64(i%17), float64(i%29))
	}
	got := append([]complex128(nil), data...)
	f := newTransform(n, lanes)
	f.apply(got, lanes, false)
	f.apply(got, lanes, true)
	for i := range data {
		if cmplx.Abs(got[i]/n-data[i]) > 1e-12 {
			t.Fatalf("point %d is %v after both, was %v", i, got[i]/n, data[i])
		}
	}
}
