//go:build linux && amd64

package instructions

import _ "unsafe" // for go:linkname

// pin keeps the scheduler from taking the thread from the goroutine, as in sync.Pool.
//
//go:linkname pin runtime.procPin
func pin() int

//go:linkname unpin runtime.procUnpin
func unpin()
