package sim

import "unsafe"

// aligned returns n bytes of zeroed memory that begin at a page, as mapped memory does.
func aligned(n int) []byte {
	b := make([]byte, n+4096)
	skip := -uintptr(unsafe.Pointer(&b[0])) & 4095
	return b[skip : int(skip)+n]
}
