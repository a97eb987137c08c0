package ioat

import (
	"sync/atomic"
	"unsafe"
)

// address returns the address of a slice's first byte.
func address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// wordOf returns the first 8 bytes of mem, which are aligned to 8 bytes.
func wordOf(mem []byte) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[:8:8][0]))
}
