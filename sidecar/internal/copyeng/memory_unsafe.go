package copyeng

import "unsafe"

// offset returns where in mem a part of it begins, and whether it is a part.
func offset(mem, part []byte) (at int, in bool) {
	if len(part) == 0 {
		return 0, false
	}
	start, p := uintptr(unsafe.Pointer(&mem[0])), uintptr(unsafe.Pointer(&part[0]))
	return int(p - start), p >= start && p+uintptr(len(part)) <= start+uintptr(len(mem))
}
