package node

import (
	"sync/atomic"
	"unsafe"
)

// word returns eight bytes of shared memory, at an offset that is a multiple of eight.
// All accesses are sequentially consistent: a side that publishes loads the other side's
// flag afterwards, and a side that sets a flag loads the published position afterwards,
// so that at least one of the two sees the other.
func word(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8 : off+8][0]))
}
