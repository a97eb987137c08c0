package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func bitwise() []kernel {
	return []kernel{
		plain("band", build.VPAND, whole("band")...),
		plain("bor", build.VPOR, whole("bor")...),
		plain("bxor", build.VPXOR, whole("bxor")...),
	}
}

// logical are the operations whose results are 0 and 1. They begin with masks that are set where
// an operand is 0.
func logical() (all []kernel) {
	equal := map[int]binary{8: wide(build.VPCMPEQB), 16: wide(build.VPCMPEQW), 32: wide(build.VPCMPEQD), 64: wide(build.VPCMPEQQ)}
	one := map[int]func(r reg.VecVirtual){
		8:  func(r reg.VecVirtual) { build.VPABSB(r, r) },
		16: func(r reg.VecVirtual) { build.VPSRLW(operand.U8(15), r, r) },
		32: func(r reg.VecVirtual) { build.VPSRLD(operand.U8(31), r, r) },
		64: func(r reg.VecVirtual) { build.VPSRLQ(operand.U8(63), r, r) },
	}
	for bits := 8; bits <= 64; bits *= 2 {
		constants := func() []reg.VecVirtual {
			zero, unit := build.YMM(), ones()
			build.VPXOR(zero, zero, zero)
			one[bits](unit)
			return []reg.VecVirtual{zero, unit}
		}
		// join joins the masks, and last makes the results of them and of ones.
		add := func(op string, join, last binary) {
			all = append(all, kernel{
				name: fmt.Sprintf("%s%d", op, bits), pairs: both(op, bits), constants: constants,
				do: func(a, b reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
					masks := result(join, result(equal[bits], a, c[0]), result(equal[bits], b, c[0]))
					return result(last, c[1], masks)
				},
			})
		}
		add("land", build.VPOR, build.VPANDN) // not where one of them is 0
		add("lor", build.VPAND, build.VPANDN) // not where both are 0
		add("lxor", build.VPXOR, build.VPAND) // where one of them is 0, and the other is not
	}
	return all
}

func integers() []kernel {
	all := []kernel{
		plain("sum8", wide(build.VPADDB), both("sum", 8)...),
		plain("sum16", wide(build.VPADDW), both("sum", 16)...),
		plain("sum32", wide(build.VPADDD), both("sum", 32)...),
		plain("sum64", wide(build.VPADDQ), both("sum", 64)...),
		{name: "prod8", pairs: both("prod", 8), constants: lowBytes, do: product8},
		plain("prod16", wide(build.VPMULLW), both("prod", 16)...),
		plain("prod32", wide(build.VPMULLD), both("prod", 32)...),
		{name: "prod64", pairs: both("prod", 64), do: product64},
		order64("minInt64", "min int64", nil, false), order64("maxInt64", "max int64", nil, true),
		order64("minUint64", "min uint64", highBits, false), order64("maxUint64", "max uint64", highBits, true),
	}
	for _, k := range []struct {
		name string
		f    binary
		pair string
	}{
		{"minInt8", wide(build.VPMINSB), "min int8"},
		{"maxInt8", wide(build.VPMAXSB), "max int8"},
		{"minInt16", wide(build.VPMINSW), "min int16"},
		{"maxInt16", wide(build.VPMAXSW), "max int16"},
		{"minInt32", wide(build.VPMINSD), "min int32"},
		{"maxInt32", wide(build.VPMAXSD), "max int32"},
		{"minUint8", wide(build.VPMINUB), "min uint8"},
		{"maxUint8", wide(build.VPMAXUB), "max uint8"},
		{"minUint16", wide(build.VPMINUW), "min uint16"},
		{"maxUint16", wide(build.VPMAXUW), "max uint16"},
		{"minUint32", wide(build.VPMINUD), "min uint32"},
		{"maxUint32", wide(build.VPMAXUD), "max uint32"},
	} {
		all = append(all, plain(k.name, k.f, k.pair))
	}
	return all
}

// lowBytes is a mask of the lower byte of each 16 bits.
func lowBytes() []reg.VecVirtual {
	r := ones()
	build.VPSRLW(operand.U8(8), r, r)
	return []reg.VecVirtual{r}
}

// product8 multiplies the bytes at even and at odd places apart, as 16 bits each.
func product8(a, b reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
	even := result(build.VPAND, c[0], result(wide(build.VPMULLW), a, b))
	build.VPSRLW(operand.U8(8), a, a)
	build.VPSRLW(operand.U8(8), b, b)
	odd := result(wide(build.VPMULLW), a, b)
	build.VPSLLW(operand.U8(8), odd, odd)
	return result(build.VPOR, even, odd)
}

// product64 adds the product of the lower halves and those of the lower half of one operand
// with the higher half of the other one.
func product64(a, b reg.VecVirtual, _ []reg.VecVirtual) reg.VecVirtual {
	swapped := build.YMM()
	build.VPSHUFD(operand.U8(0xb1), b, swapped)
	cross := result(wide(build.VPMULLD), a, swapped)
	other := build.YMM()
	build.VPSRLQ(operand.U8(32), cross, other)
	high := result(wide(build.VPADDD), cross, other)
	build.VPSLLQ(operand.U8(32), high, high)
	return result(wide(build.VPADDQ), high, result(wide(build.VPMULUDQ), a, b))
}

// highBits has the highest bit of each 64 set: a comparison of unsigned numbers is one of signed
// numbers that differ from them in it.
func highBits() []reg.VecVirtual {
	r := ones()
	build.VPSLLQ(operand.U8(63), r, r)
	return []reg.VecVirtual{r}
}

// order64 is a minimum or maximum, for which AVX2 has no instruction.
func order64(name, pair string, constants func() []reg.VecVirtual, greatest bool) kernel {
	return kernel{name: name, pairs: []string{pair}, constants: constants, do: func(a, b reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
		x, y := a, b
		if constants != nil {
			x, y = result(build.VPXOR, c[0], a), result(build.VPXOR, c[0], b)
		}
		larger, to := build.YMM(), build.YMM()
		build.VPCMPGTQ(y, x, larger) // where a is larger than b
		if greatest {
			build.VPBLENDVB(larger, a, b, to)
		} else {
			build.VPBLENDVB(larger, b, a, to)
		}
		return to
	}}
}
