package ioatmodel

import (
	"sync/atomic"
	"unsafe"
)

func address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// store writes a word of 8 bytes at once, as the device does.
func store(mem []byte, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[:8:8][0])), v)
}
