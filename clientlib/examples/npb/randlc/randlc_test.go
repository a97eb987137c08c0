package randlc

import (
	"math"
	"testing"
)

// The first states after each benchmark seed, computed with arbitrary
// precision integers.
func TestFirstStates(t *testing.T) {
	for seed, want := range map[uint64][]uint64{
		Seed:   {55909509111989, 61155031930969, 45573031421645, 55279057169489, 1250169187877},
		SeedEP: {32883653486115, 55063727434591, 39106144873291, 46899331031975, 34322078696755},
	} {
		s := New(seed)
		for i, state := range want {
			got := s.Next()
			if s.State() != state {
				t.Errorf("seed %d: state %d is %d, want %d", seed, i+1, s.State(), state)
			}
			if got != math.Ldexp(float64(state), -46) {
				t.Errorf("seed %d: number %d is %v, want %d/2^46", seed, i+1, got, state)
			}
		}
	}
}

// split computes the recurrence as the report defines it (RNR-94-007 chapter 2):
// operands in 23-bit halves, every product exact in double precision.
func split(x, a float64) float64 {
	const r23, t23 = 1.0 / (1 << 23), 1 << 23
	const r46, t46 = 1.0 / (1 << 46), 1 << 46
	a1 := math.Trunc(r23 * a)
	a2 := a - t23*a1
	x1 := math.Trunc(r23 * x)
	x2 := x - t23*x1
	cross := a1*x2 + a2*x1
	z := cross - t23*math.Trunc(r23*cross)
	sum := t23*z + a2*x2
	return sum - t46*math.Trunc(r46*sum)
}

func TestAgreesWithTheSplitDoubleForm(t *testing.T) {
	s, x := New(Seed), float64(Seed)
	for i := range 100_000 {
		x = split(x, Multiplier)
		if got := s.Next(); got != x*Scale {
			t.Fatalf("number %d: %v, the split form gives %v", i+1, got, x*Scale)
		}
	}
}

func TestSkipIsRepeatedNext(t *testing.T) {
	walked := New(SeedEP)
	for n := range uint64(1000) {
		jumped := New(SeedEP)
		jumped.Skip(n)
		if jumped != walked {
			t.Fatalf("Skip(%d) reaches %d, %d calls of Next reach %d", n, jumped.x, n, walked.x)
		}
		walked.Next()
	}
}

func TestPowerOfLargeExponents(t *testing.T) {
	if got := Power(1 << 40); got != 13194139533313 {
		t.Errorf("5^13 to 2^40 is %d mod 2^46, want 13194139533313", got)
	}
	s := New(Seed)
	s.Skip(1_000_000)
	if s.State() != 50447193586593 {
		t.Errorf("the millionth state is %d, want 50447193586593", s.State())
	}
	if Power(1<<44) != 1 {
		t.Error("the period of the generator is 2^44: the multiplier to that power must be 1")
	}
}

func TestFillIsRepeatedNext(t *testing.T) {
	one, many := New(Seed), New(Seed)
	got := make([]float64, 257)
	many.Fill(got)
	for i := range got {
		if want := one.Next(); got[i] != want {
			t.Fatalf("Fill[%d] = %v, Next gives %v", i, got[i], want)
		}
	}
	if one != many {
		t.Error("Fill leaves the stream at another place than as many calls of Next")
	}
}
