package coll

import "math"

// quiet64 is the only NaN in results of this package.
const quiet64 uint64 = 0x7ff8000000000000

func load64(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }

func store64(b []byte, x float64) { le.PutUint64(b, math.Float64bits(x)) }

// storeQuiet64 stores x, or quiet64 if x is a NaN.
func storeQuiet64(b []byte, x float64) {
	if x != x {
		le.PutUint64(b, quiet64)
		return
	}
	store64(b, x)
}

func applyFloat64(op Op, dst, src []byte) {
	switch op {
	case Sum:
		sumFloat64(dst, src)
	case Prod:
		prodFloat64(dst, src)
	case Min:
		for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
			storeQuiet64(dst, min(load64(dst), load64(src)))
		}
	case Max:
		for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
			storeQuiet64(dst, max(load64(dst), load64(src)))
		}
	}
}

// sumFloat64 and prodFloat64 check for NaN once for four elements: if one of them is a NaN, so
// is their sum. Infinities may make the sum a NaN, too, which only costs time.
func sumFloat64(dst, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 32; dst, src = dst[32:], src[32:] {
		d, s := (*[32]byte)(dst), (*[32]byte)(src)
		a := load64(d[0:]) + load64(s[0:])
		b := load64(d[8:]) + load64(s[8:])
		e := load64(d[16:]) + load64(s[16:])
		f := load64(d[24:]) + load64(s[24:])
		store64(d[0:], a)
		store64(d[8:], b)
		store64(d[16:], e)
		store64(d[24:], f)
		if t := (a + b) + (e + f); t != t {
			quietFloat64(d)
		}
	}
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		storeQuiet64(dst, load64(dst)+load64(src))
	}
}

func prodFloat64(dst, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 32; dst, src = dst[32:], src[32:] {
		d, s := (*[32]byte)(dst), (*[32]byte)(src)
		a := load64(d[0:]) * load64(s[0:])
		b := load64(d[8:]) * load64(s[8:])
		e := load64(d[16:]) * load64(s[16:])
		f := load64(d[24:]) * load64(s[24:])
		store64(d[0:], a)
		store64(d[8:], b)
		store64(d[16:], e)
		store64(d[24:], f)
		if t := (a + b) + (e + f); t != t {
			quietFloat64(d)
		}
	}
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		storeQuiet64(dst, load64(dst)*load64(src))
	}
}

// quietFloat64 replaces every NaN of four elements.
func quietFloat64(d *[32]byte) {
	for i := 0; i < len(d); i += 8 {
		storeQuiet64(d[i:], load64(d[i:]))
	}
}

// prodComplex128 multiplies. The conversions keep the compiler from fusing a
// product with the sum, which it does on some processors only.
func prodComplex128(dst, src []byte) {
	for ; len(dst) >= 16 && len(src) >= 16; dst, src = dst[16:], src[16:] {
		ar, ai := load64(dst), load64(dst[8:])
		br, bi := load64(src), load64(src[8:])
		storeQuiet64(dst, float64(ar*br)-float64(ai*bi))
		storeQuiet64(dst[8:], float64(ar*bi)+float64(ai*br))
	}
}
