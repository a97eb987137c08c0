package kernels

import "golang.org/x/sys/cpu"

// Find returns the kernel of an operation and a type, by their names in package coll. It returns
// nil if there is none for this processor.
func Find(op, typ string) Func {
	if !cpu.X86.HasAVX2 {
		return nil
	}
	return avx2[op+" "+typ]
}
