package coll

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll/kernels"
)

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// slow applies f to typed elements, read and written by encoding/binary.
func slow[T any](f func(a, b T) T) func(dst, src []byte) {
	return func(dst, src []byte) {
		var zero T
		n := len(dst) / binary.Size(zero)
		a, b := make([]T, n), make([]T, n)
		must(binary.Read(bytes.NewReader(dst), binary.LittleEndian, a))
		must(binary.Read(bytes.NewReader(src), binary.LittleEndian, b))
		for i := range a {
			a[i] = f(b[i], a[i])
		}
		var out bytes.Buffer
		must(binary.Write(&out, binary.LittleEndian, a))
		copy(dst, out.Bytes())
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func slowInteger[T integer](op Op) func(dst, src []byte) {
	truth := func(f func(a, b bool) bool) func(a, b T) T {
		return func(a, b T) T {
			if f(a != 0, b != 0) {
				return 1
			}
			return 0
		}
	}
	return slow(map[Op]func(a, b T) T{
		Sum:     func(a, b T) T { return a + b },
		Prod:    func(a, b T) T { return a * b },
		Min:     func(a, b T) T { return min(a, b) },
		Max:     func(a, b T) T { return max(a, b) },
		LAnd:    truth(func(a, b bool) bool { return a && b }),
		LOr:     truth(func(a, b bool) bool { return a || b }),
		LXor:    truth(func(a, b bool) bool { return a != b }),
		BAnd:    func(a, b T) T { return a & b },
		BOr:     func(a, b T) T { return a | b },
		BXor:    func(a, b T) T { return a ^ b },
		Replace: func(a, _ T) T { return a },
		NoOp:    func(_, b T) T { return b },
	}[op])
}

func slowFloat[T float32 | float64](op Op) func(dst, src []byte) {
	quiet := func(f func(a, b T) T) func(a, b T) T {
		return func(a, b T) T {
			if r := f(a, b); r == r {
				return r
			}
			return T(math.Float32frombits(0x7fc00000))
		}
	}
	return slow(map[Op]func(a, b T) T{
		Sum:     quiet(func(a, b T) T { return a + b }),
		Prod:    quiet(func(a, b T) T { return a * b }),
		Min:     quiet(number[T](math.Min)),
		Max:     quiet(number[T](math.Max)),
		Replace: func(a, _ T) T { return a },
		NoOp:    func(_, b T) T { return b },
	}[op])
}

// number extends f to NaN, to which math.Min and math.Max prefer an infinity.
func number[T float32 | float64](f func(a, b float64) float64) func(a, b T) T {
	return func(a, b T) T {
		if a != a || b != b {
			return a + b
		}
		return T(f(float64(a), float64(b)))
	}
}

func slowOf(op Op, typ Type) func(dst, src []byte) {
	switch typ {
	case Int8:
		return slowInteger[int8](op)
	case Int16:
		return slowInteger[int16](op)
	case Int32:
		return slowInteger[int32](op)
	case Int64:
		return slowInteger[int64](op)
	case Uint8:
		return slowInteger[uint8](op)
	case Uint16:
		return slowInteger[uint16](op)
	case Uint32:
		return slowInteger[uint32](op)
	case Uint64:
		return slowInteger[uint64](op)
	case Float32:
		return slowFloat[float32](op)
	case Float64:
		return slowFloat[float64](op)
	case Complex64:
		return slowComplex[float32](op)
	}
	return slowComplex[float64](op)
}

// slowComplex applies op to pairs of floats.
func slowComplex[T float32 | float64](op Op) func(dst, src []byte) {
	if op != Prod {
		return slowFloat[T](op)
	}
	return slow(func(a, b [2]T) [2]T {
		r := [2]T{T(a[0]*b[0]) - T(a[1]*b[1]), T(a[0]*b[1]) + T(a[1]*b[0])} //nolint:unconvert // an explicit conversion keeps the product from being fused with the sum
		for i := range r {
			if r[i] != r[i] {
				r[i] = T(math.Float32frombits(0x7fc00000))
			}
		}
		return r
	})
}

// values fills elements with numbers of the type: random bits, few zeros and
// ones, infinities, NaN and negative zeros.
func values(r *rand.Rand, typ Type, n int) []byte {
	b := make([]byte, n*typ.Size())
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	unit := typ.Size()
	if typ.complex() {
		unit /= 2
	}
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, -2.5}
	for i := 0; i+unit <= len(b); i += unit {
		at := b[i : i+unit]
		x := special[r.IntN(len(special))]
		switch {
		case r.IntN(2) == 0:
		case typ.integer():
			clear(at)
			at[r.IntN(unit)] = byte(r.IntN(2)) << r.IntN(8)
		case unit == 4:
			binary.LittleEndian.PutUint32(at, math.Float32bits(float32(x)))
		default:
			binary.LittleEndian.PutUint64(at, math.Float64bits(x))
		}
	}
	return b
}

// TestApply compares every operation on every type with a simple loop, at lengths around the
// widths of the fast loops.
func TestApply(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for op := Sum; op <= NoOp; op++ {
		for typ := Int8; typ <= Complex128; typ++ {
			if Valid(op, typ) != nil {
				continue
			}
			for n := range 70 {
				dst, src := values(r, typ, n), values(r, typ, n)
				want, reversed, kept, plain := bytes.Clone(dst), bytes.Clone(dst), bytes.Clone(src), bytes.Clone(dst)
				slowOf(op, typ)(want, src)
				if apply(op, typ, plain, src); !bytes.Equal(plain, want) {
					t.Fatalf("%v of %d %v, without kernels:\n got %x\nwant %x", op, n, typ, plain, want)
				}
				if err := Apply(op, typ, dst, src); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(dst, want) {
					t.Fatalf("%v of %d %v:\n got %x\nwant %x", op, n, typ, dst, want)
				}
				if err := ApplyReversed(op, typ, reversed, src); err != nil || !bytes.Equal(reversed, want) {
					t.Fatalf("%v of %d %v, reversed: %x, %v; want %x", op, n, typ, reversed, err, want)
				}
				if !bytes.Equal(src, kept) {
					t.Fatalf("%v of %v wrote its source", op, typ)
				}
			}
		}
	}
}

// TestOperandOrderDoesNotShow checks the property because of which ApplyReversed calls Apply.
func TestOperandOrderDoesNotShow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for op := Sum; op <= BXor; op++ {
		for typ := Int8; typ <= Complex128; typ++ {
			if Valid(op, typ) != nil {
				continue
			}
			a, b := values(r, typ, 500), values(r, typ, 500)
			x, y := bytes.Clone(a), bytes.Clone(b)
			if err := Apply(op, typ, x, b); err != nil {
				t.Fatal(err)
			}
			if err := Apply(op, typ, y, a); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x, y) {
				t.Errorf("%v of %v depends on the order of its operands", op, typ)
			}
		}
	}
}

func TestValid(t *testing.T) {
	refused := map[string]bool{}
	for op := LAnd; op <= BXor; op++ {
		for typ := Float32; typ <= Complex128; typ++ {
			refused[fmt.Sprint(op, typ)] = true
		}
	}
	for _, op := range []Op{Min, Max} {
		refused[fmt.Sprint(op, Complex64)] = true
		refused[fmt.Sprint(op, Complex128)] = true
	}
	for op := Op(0); ; op++ {
		for typ := Type(0); typ < 20; typ++ {
			want := op >= Sum && op <= NoOp && typ >= Int8 && typ <= Complex128 && !refused[fmt.Sprint(op, typ)]
			if err := Valid(op, typ); (err == nil) != want {
				t.Errorf("Valid(%v, %v) = %v, want ok %t", op, typ, err, want)
			}
			if err := Apply(op, typ, nil, nil); (err == nil) != want {
				t.Errorf("Apply(%v, %v) of nothing = %v, want ok %t", op, typ, err, want)
			}
		}
		if op == User {
			break
		}
	}
	for _, lens := range [][2]int{{8, 16}, {6, 6}, {0, 4}} {
		if err := Apply(Sum, Int32, make([]byte, lens[0]), make([]byte, lens[1])); err == nil {
			t.Errorf("Apply accepted %d and %d bytes of int32", lens[0], lens[1])
		}
	}
}

func TestApplyDoesNotAllocate(t *testing.T) {
	dst, src := make([]byte, 80), make([]byte, 80)
	for typ := Int8; typ <= Complex128; typ++ {
		if n := testing.AllocsPerRun(10, func() { must(Apply(Sum, typ, dst, src)) }); n != 0 {
			t.Errorf("%v: %v allocations, want 0", typ, n)
		}
	}
}

// FuzzKernels compares the kernels of this processor with the operations in Go, for any bits.
func FuzzKernels(f *testing.F) {
	f.Add(uint8(Sum), uint8(Float64), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, op, typ uint8, a, b []byte) {
		o, e := Op(op), Type(typ)
		if Valid(o, e) != nil || len(a) == 0 || len(b) == 0 {
			return
		}
		n := (2*kernels.Block + len(a)%kernels.Block) / e.Size() * e.Size()
		dst, src := make([]byte, n), make([]byte, n)
		for i := range n {
			dst[i], src[i] = a[i%len(a)], b[i%len(b)]
		}
		want := bytes.Clone(dst)
		apply(o, e, want, src)
		if err := Apply(o, e, dst, src); err != nil || !bytes.Equal(dst, want) {
			t.Errorf("%v of %v, %v:\n got %x\nwant %x", o, e, err, dst, want)
		}
	})
}

// BenchmarkApply measures each operation, and its throughput in relation to that of a copy.
func BenchmarkApply(b *testing.B) {
	const size = 8192
	dst, src := make([]byte, size), make([]byte, size)
	const copies = 100_000
	begun := time.Now()
	for range copies {
		copy(dst, src)
	}
	copied := float64(time.Since(begun).Nanoseconds()) / copies
	for op := Sum; op <= Replace; op++ {
		for typ := Int8; typ <= Complex128; typ++ {
			if Valid(op, typ) != nil {
				continue
			}
			b.Run(fmt.Sprintf("%v-%v", op, typ), func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					must(Apply(op, typ, dst, src))
				}
				once := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				b.ReportMetric(copied/once, "of-copy")
			})
		}
	}
}
