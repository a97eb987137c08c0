package coll

import "encoding/binary"

var le = binary.LittleEndian

// Sums, and bitwise and logical operations, handle words of eight bytes for integers of any
// width: tops has the highest bit of each integer.

// topBits returns the highest bit of every integer of the given bytes in a word.
func topBits(width int) uint64 {
	switch width {
	case 1:
		return 0x8080808080808080
	case 2:
		return 0x8000800080008000
	case 4:
		return 0x8000000080000000
	}
	return 1 << 63
}

func applyInteger(op Op, typ Type, dst, src []byte) {
	tops := topBits(typ.Size())
	switch op {
	case Prod:
		prodInteger(typ.Size(), dst, src)
	case Min, Max:
		minInteger(typ.Size(), orderMask(op, typ, tops), dst, src)
	default:
		n := len(dst) &^ 7
		applyWords(op, typ.Size(), tops, dst[:n], src[:n])
		if n < len(dst) {
			var a, b [8]byte
			copy(a[:], dst[n:])
			copy(b[:], src[n:])
			applyWords(op, typ.Size(), tops, a[:], b[:])
			copy(dst[n:], a[:])
		}
	}
}

func applyWords(op Op, width int, tops uint64, dst, src []byte) {
	switch op {
	case Sum:
		sumWords(tops, dst, src)
	case BAnd:
		andWords(dst, src)
	case BOr:
		orWords(dst, src)
	case BXor:
		xorWords(dst, src)
	default:
		logicWords(op, uint(8*width-1), tops, dst, src)
	}
}

// sumLanes adds without carries between integers: it adds the lower bits, and then the highest
// bits by exclusive or.
func sumLanes(a, b, tops uint64) uint64 { return (a&^tops + b&^tops) ^ (a^b)&tops }

func sumWords(tops uint64, dst, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 32; dst, src = dst[32:], src[32:] {
		d, s := (*[32]byte)(dst), (*[32]byte)(src)
		le.PutUint64(d[0:], sumLanes(le.Uint64(d[0:]), le.Uint64(s[0:]), tops))
		le.PutUint64(d[8:], sumLanes(le.Uint64(d[8:]), le.Uint64(s[8:]), tops))
		le.PutUint64(d[16:], sumLanes(le.Uint64(d[16:]), le.Uint64(s[16:]), tops))
		le.PutUint64(d[24:], sumLanes(le.Uint64(d[24:]), le.Uint64(s[24:]), tops))
	}
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		le.PutUint64(dst, sumLanes(le.Uint64(dst), le.Uint64(src), tops))
	}
}

func andWords(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		le.PutUint64(dst, le.Uint64(dst)&le.Uint64(src))
	}
}

func orWords(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		le.PutUint64(dst, le.Uint64(dst)|le.Uint64(src))
	}
}

func xorWords(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		le.PutUint64(dst, le.Uint64(dst)^le.Uint64(src))
	}
}

// truth returns the highest bit of every integer that is not 0: adding all
// other bits carries into the highest one unless they are all 0.
func truth(a, tops uint64) uint64 { return ((a&^tops + ^tops) | a) & tops }

func logicWords(op Op, shift uint, tops uint64, dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		a, b := truth(le.Uint64(dst), tops), truth(le.Uint64(src), tops)
		switch op {
		case LAnd:
			a &= b
		case LOr:
			a |= b
		default:
			a ^= b
		}
		le.PutUint64(dst, a>>(shift&63))
	}
}

// prodInteger multiplies; the low bits of a product do not depend on signs.
func prodInteger(width int, dst, src []byte) {
	switch width {
	case 1:
		for i := range min(len(dst), len(src)) {
			dst[i] *= src[i]
		}
	case 2:
		for ; len(dst) >= 2 && len(src) >= 2; dst, src = dst[2:], src[2:] {
			le.PutUint16(dst, le.Uint16(dst)*le.Uint16(src))
		}
	case 4:
		for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
			le.PutUint32(dst, le.Uint32(dst)*le.Uint32(src))
		}
	default:
		for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
			le.PutUint64(dst, le.Uint64(dst)*le.Uint64(src))
		}
	}
}

// orderMask returns the bits to flip so that the result of op is the minimum of unsigned
// numbers: the sign bit of signed numbers, and all bits for a maximum.
func orderMask(op Op, typ Type, tops uint64) uint64 {
	mask := uint64(0)
	if typ.signed() {
		mask = tops
	}
	if op == Max {
		mask = ^mask
	}
	return mask
}

func minInteger(width int, mask uint64, dst, src []byte) {
	switch width {
	case 1:
		m := uint8(mask)
		for i := range min(len(dst), len(src)) {
			dst[i] = min(dst[i]^m, src[i]^m) ^ m
		}
	case 2:
		m := uint16(mask)
		for ; len(dst) >= 2 && len(src) >= 2; dst, src = dst[2:], src[2:] {
			le.PutUint16(dst, min(le.Uint16(dst)^m, le.Uint16(src)^m)^m)
		}
	case 4:
		m := uint32(mask)
		for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
			le.PutUint32(dst, min(le.Uint32(dst)^m, le.Uint32(src)^m)^m)
		}
	default:
		for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
			le.PutUint64(dst, min(le.Uint64(dst)^mask, le.Uint64(src)^mask)^mask)
		}
	}
}
