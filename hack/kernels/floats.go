package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// float has the instructions for floats of a size.
type float struct {
	bits                        int
	add, mul, min, max, and, or binary
	addSub                      binary
	compare                     func(ops ...operand.Op)
	blend                       func(mask, x, y, to operand.Op)
	right, left                 func(by, x, to operand.Op)
	sign                        uint8 // bits of a float that are not of its significand, but for the sign
	even, odd                   func(ops ...operand.Op)
	swap                        func(how, x, to operand.Op)
	swapped                     uint8
}

var sizes = []float{
	{
		bits: 32, add: wide(build.VADDPS), mul: wide(build.VMULPS), min: wide(build.VMINPS), max: wide(build.VMAXPS), and: wide(build.VANDPS), or: wide(build.VORPS),
		addSub: build.VADDSUBPS, compare: build.VCMPPS, blend: build.VBLENDVPS, right: wide(build.VPSRLD), left: wide(build.VPSLLD), sign: 23,
		even: build.VMOVSLDUP, odd: build.VMOVSHDUP, swap: wide(build.VPERMILPS), swapped: 0xb1,
	},
	{
		bits: 64, add: wide(build.VADDPD), mul: wide(build.VMULPD), min: wide(build.VMINPD), max: wide(build.VMAXPD), and: wide(build.VANDPD), or: wide(build.VORPD),
		addSub: build.VADDSUBPD, compare: build.VCMPPD, blend: build.VBLENDVPD, right: wide(build.VPSRLQ), left: wide(build.VPSLLQ), sign: 52,
		even: build.VMOVDDUP, odd: func(ops ...operand.Op) { build.VPERMILPD(operand.U8(0xf), ops[0], ops[1]) }, swap: wide(build.VPERMILPD), swapped: 0x5,
	},
}

// quiet is a register of the NaN that results have.
func (f *float) quiet() []reg.VecVirtual {
	r := ones()
	f.right(operand.U8(f.sign), r, r)
	f.left(operand.U8(f.sign-1), r, r)
	return []reg.VecVirtual{r}
}

// unordered compares, with a result of ones where x or y is a NaN.
const unordered = 3

// clean replaces each result where x or y is a NaN.
func (f *float) clean(r, x, y reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
	mask, to := build.YMM(), build.YMM()
	f.compare(operand.U8(unordered), x, y, mask)
	f.blend(mask, c[0], r, to)
	return to
}

// arithmetic is a sum or a product.
func (f *float) arithmetic(op string, do binary, pairs ...string) kernel {
	return kernel{
		name: fmt.Sprintf("%sFloat%d", op, f.bits), pairs: pairs, constants: f.quiet,
		do: func(a, b reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
			r := result(do, a, b)
			return f.clean(r, r, r, c)
		},
	}
}

// order is a minimum or maximum. Of two zeros the instruction returns that of one operand: it is
// executed in both orders, and join makes -0 of a minimum, or +0 of a maximum.
func (f *float) order(op string, do, join binary) kernel {
	return kernel{
		name: fmt.Sprintf("%sFloat%d", op, f.bits), pairs: []string{fmt.Sprintf("%s float%d", op, f.bits)}, constants: f.quiet,
		do: func(a, b reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
			return f.clean(result(join, result(do, a, b), result(do, b, a)), a, b, c)
		},
	}
}

func floats() (all []kernel) {
	for i := range sizes {
		f := &sizes[i]
		all = append(all,
			f.arithmetic("sum", f.add, fmt.Sprintf("sum float%d", f.bits), fmt.Sprintf("sum complex%d", 2*f.bits)),
			f.arithmetic("prod", f.mul, fmt.Sprintf("prod float%d", f.bits)),
			f.order("min", f.min, f.or), f.order("max", f.max, f.and))
	}
	return all
}

// complexes are the products of complex numbers, which are not fused: the real part is a
// difference and the imaginary part a sum of two rounded products.
func complexes() (all []kernel) {
	for i := range sizes {
		f := &sizes[i]
		all = append(all, kernel{
			name: fmt.Sprintf("prodComplex%d", 2*f.bits), pairs: []string{fmt.Sprintf("prod complex%d", 2*f.bits)}, constants: f.quiet,
			do: func(a, b reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
				re, im, swapped := build.YMM(), build.YMM(), build.YMM()
				f.even(a, re)
				f.odd(a, im)
				f.swap(operand.U8(f.swapped), b, swapped)
				r := result(f.addSub, result(f.mul, im, swapped), result(f.mul, re, b))
				return f.clean(r, r, r, c)
			},
		})
	}
	return all
}
