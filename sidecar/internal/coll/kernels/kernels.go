// Package kernels has the operations of collectives in the assembly of AVX2, which handles 32
// bytes at once. Package coll has the same operations in Go: they are the test of these, make
// what is left of a vector, and serve processors without AVX2. The results are equal to the bit.
package kernels

//go:generate go run ../../../../hack/kernels -out kernels_amd64.s -stubs stubs_amd64.go -pkg kernels -table table_amd64.go

// Block is the number of bytes of which a kernel handles a multiple.
const Block = 64

// Func sets dst to src op dst, element by element. len(dst) is a multiple of Block, and src is
// not shorter.
type Func func(dst, src []byte)
