package wake

import "unsafe"

func word(mem []byte) *uint32 { return (*uint32)(unsafe.Pointer(&mem[0])) }
