package node

import (
	"sync/atomic"
	"unsafe"
)

// word is eight bytes of shared memory, at an offset that eight divides. All accesses
// are sequentially consistent: who publishes looks at the other side's flag afterwards,
// and who sets a flag looks at what is published, so that one of the two sees the other.
func word(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8 : off+8][0]))
}
