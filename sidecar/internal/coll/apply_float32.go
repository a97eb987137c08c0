package coll

import "math"

// quiet32 is the only NaN in results of this package.
const quiet32 uint32 = 0x7fc00000

func load32(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }

func store32(b []byte, x float32) { le.PutUint32(b, math.Float32bits(x)) }

// storeQuiet32 stores x, or quiet32 if x is a NaN.
func storeQuiet32(b []byte, x float32) {
	if x != x {
		le.PutUint32(b, quiet32)
		return
	}
	store32(b, x)
}

func applyFloat32(op Op, dst, src []byte) {
	switch op {
	case Sum:
		sumFloat32(dst, src)
	case Prod:
		prodFloat32(dst, src)
	case Min:
		for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
			storeQuiet32(dst, min(load32(dst), load32(src)))
		}
	case Max:
		for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
			storeQuiet32(dst, max(load32(dst), load32(src)))
		}
	}
}

// sumFloat32 and prodFloat32 check for NaN once for four elements: if one of them is a NaN, so
// is their sum. Infinities may make the sum a NaN, too, which only costs time.
func sumFloat32(dst, src []byte) {
	for ; len(dst) >= 16 && len(src) >= 16; dst, src = dst[16:], src[16:] {
		d, s := (*[16]byte)(dst), (*[16]byte)(src)
		a := load32(d[0:]) + load32(s[0:])
		b := load32(d[4:]) + load32(s[4:])
		e := load32(d[8:]) + load32(s[8:])
		f := load32(d[12:]) + load32(s[12:])
		store32(d[0:], a)
		store32(d[4:], b)
		store32(d[8:], e)
		store32(d[12:], f)
		if t := (a + b) + (e + f); t != t {
			quietFloat32(d)
		}
	}
	for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
		storeQuiet32(dst, load32(dst)+load32(src))
	}
}

func prodFloat32(dst, src []byte) {
	for ; len(dst) >= 16 && len(src) >= 16; dst, src = dst[16:], src[16:] {
		d, s := (*[16]byte)(dst), (*[16]byte)(src)
		a := load32(d[0:]) * load32(s[0:])
		b := load32(d[4:]) * load32(s[4:])
		e := load32(d[8:]) * load32(s[8:])
		f := load32(d[12:]) * load32(s[12:])
		store32(d[0:], a)
		store32(d[4:], b)
		store32(d[8:], e)
		store32(d[12:], f)
		if t := (a + b) + (e + f); t != t {
			quietFloat32(d)
		}
	}
	for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
		storeQuiet32(dst, load32(dst)*load32(src))
	}
}

// quietFloat32 replaces every NaN of four elements.
func quietFloat32(d *[16]byte) {
	for i := 0; i < len(d); i += 4 {
		storeQuiet32(d[i:], load32(d[i:]))
	}
}

// prodComplex64 multiplies. The conversions keep the compiler from fusing a
// product with the sum, which it does on some processors only.
func prodComplex64(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		ar, ai := load32(dst), load32(dst[4:])
		br, bi := load32(src), load32(src[4:])
		storeQuiet32(dst, float32(ar*br)-float32(ai*bi))
		storeQuiet32(dst[4:], float32(ar*bi)+float32(ai*br))
	}
}
