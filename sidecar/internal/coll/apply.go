package coll

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll/kernels"
)

// fast are the kernels of this processor; nil: there is none.
var fast = func() (all [NoOp + 1][Complex128 + 1]kernels.Func) {
	for op := Sum; op <= NoOp; op++ {
		for typ := Int8; typ <= Complex128; typ++ {
			all[op][typ] = kernels.Find(op.String(), typ.String())
		}
	}
	return all
}()

// Apply sets dst to src op dst, element by element: src is the left operand. Both have the
// same length, a multiple of the size of typ, and do not overlap. Replace sets dst to src, and
// NoOp leaves dst unchanged.
//
// Integers wrap. Min and Max of a NaN are NaN. A result that is not a number is always the
// same quiet NaN, complex products are not fused, and -0 is less than +0, so that a result
// depends neither on the order of the two operands nor on the processor.
func Apply(op Op, typ Type, dst, src []byte) error {
	if err := Valid(op, typ); err != nil {
		return err
	}
	if len(dst) != len(src) || len(dst)%typ.Size() != 0 {
		return fmt.Errorf("coll: %v on %d and %d bytes; both must be the same multiple of %d",
			op, len(dst), len(src), typ.Size())
	}
	if k, n := fast[op][typ], len(dst)&^(kernels.Block-1); k != nil && n > 0 {
		k(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	apply(op, typ, dst, src)
	return nil
}

// apply does what Apply does, without kernels.
func apply(op Op, typ Type, dst, src []byte) {
	switch {
	case op == NoOp:
	case op == Replace:
		copy(dst, src)
	case typ.integer():
		applyInteger(op, typ, dst, src)
	case typ == Float32 || typ == Complex64 && op == Sum:
		applyFloat32(op, dst, src)
	case typ == Float64 || typ == Complex128 && op == Sum:
		applyFloat64(op, dst, src)
	case typ == Complex64:
		prodComplex64(dst, src)
	default:
		prodComplex128(dst, src)
	}
}

// Cost returns about how many bytes can be copied in the time that Apply takes for one. Sums
// and bitwise operations handle several elements at once, and the others compare or multiply
// element by element (BenchmarkApply).
func Cost(op Op) int64 {
	switch op {
	case Sum, BAnd, BOr, BXor, Replace, NoOp:
		return 1
	}
	return 4
}

// ApplyReversed sets dst to dst op src, for a Fold that is Reversed. All operations of this
// package give the same result either way, to the bit. Both names exist so that a caller that
// has operations of its own can dispatch all operations in the same way.
func ApplyReversed(op Op, typ Type, dst, src []byte) error { return Apply(op, typ, dst, src) }
