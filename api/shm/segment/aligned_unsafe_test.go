package segment

import "unsafe"

// aligned returns memory that begins at a page boundary, as a mapping does.
func aligned(n int) []byte {
	b := make([]byte, n+pageBytes)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (pageBytes - 1)
	return b[skip : int(skip)+n]
}
