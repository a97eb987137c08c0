// Package randlc is the pseudorandom stream that every NAS Parallel Benchmark
// draws its input from: the linear congruential generator
//
//	x[k+1] = a·x[k] mod 2⁴⁶
//
// of "The NAS Parallel Benchmarks" (NAS report RNR-94-007, chapter 2,
// "A Pseudorandom Number Generator for the Parallel NAS Kernels"),
// returning x[k+1]·2⁻⁴⁶, a number in (0,1).
//
// The published code splits the operands in 23-bit halves so that the product
// is exact in double precision. Here the product is a plain uint64 one: it is
// taken modulo 2⁶⁴ by the machine, and since 2⁴⁶ divides 2⁶⁴ its low 46 bits
// are the same number.
package randlc

// Constants of the generator as the benchmarks use it.
const (
	Multiplier = 1220703125 // a = 5¹³
	Seed       = 314159265  // x[0] of CG, IS and MG
	SeedEP     = 271828183  // x[0] of EP
	Mask       = 1<<46 - 1  // reduction modulo 2⁴⁶
	Scale      = 1.0 / (1 << 46)
)

// Stream is a position in the sequence. It is a value: copying it forks the
// stream. The zero Stream is not usable (zero is a fixed point of the map).
type Stream struct{ x uint64 }

// New returns the stream whose first number is the one after seed. Seed must
// be odd and below 2⁴⁶, as the benchmarks' seeds are.
func New(seed uint64) Stream { return Stream{x: seed & Mask} }

// Next advances by one and returns the number reached.
func (s *Stream) Next() float64 {
	s.x = s.x * Multiplier & Mask
	return float64(s.x) * Scale
}

// Fill writes the next len(dst) numbers to dst (NPB's vranlc).
func (s *Stream) Fill(dst []float64) {
	x := s.x
	for i := range dst {
		x = x * Multiplier & Mask
		dst[i] = float64(x) * Scale
	}
	s.x = x
}

// Skip advances by n numbers in O(log n), so that every rank can start at its own
// position of the global sequence.
func (s *Stream) Skip(n uint64) { s.x = s.x * Power(n) & Mask }

// State returns the integer x at the current position, for a caller that steps the
// recurrence itself in an inner loop.
func (s Stream) State() uint64 { return s.x }

// Power returns Multiplier to the nth power, modulo 2⁴⁶ (NPB's ipow46).
func Power(n uint64) uint64 {
	result, square := uint64(1), uint64(Multiplier)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = result * square & Mask
		}
		square = square * square & Mask
	}
	return result
}
