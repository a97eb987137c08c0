package outrigger

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Op is an operation of a reduction.
type Op struct {
	code        uint8
	commutative bool
	call        func(inout, in []byte) // function of a user-defined operation
	size        int                    // size in bytes of the elements that call combines
}

// The predefined operations. Logical ones take zero as false and return 0 or 1.
var (
	Sum  = Op{code: shm.ReduceSum, commutative: true}
	Prod = Op{code: shm.ReduceProd, commutative: true}
	Min  = Op{code: shm.ReduceMin, commutative: true}
	Max  = Op{code: shm.ReduceMax, commutative: true}
	LAnd = Op{code: shm.ReduceLAnd, commutative: true}
	LOr  = Op{code: shm.ReduceLOr, commutative: true}
	LXor = Op{code: shm.ReduceLXor, commutative: true}
	BAnd = Op{code: shm.ReduceBAnd, commutative: true}
	BOr  = Op{code: shm.ReduceBOr, commutative: true}
	BXor = Op{code: shm.ReduceBXor, commutative: true}
	// Replace and NoOp are for accumulate and fetch.
	Replace = Op{code: shm.ReduceReplace}
	NoOp    = Op{code: shm.ReduceNoOp}
)

// OpFunc returns an operation for a function that computes inout[i] = in[i] op inout[i],
// associatively. The function runs in this process, in calls of this library, so that such a
// reduction makes no progress while the application computes. It must not call the library.
func OpFunc[T Number](commutative bool, f func(inout, in []T)) Op {
	size := sizeOf[T]()
	return Op{code: shm.ReduceUser, commutative: commutative, size: size, call: func(inout, in []byte) {
		f(sliceOf[T](inout, len(inout)/size), sliceOf[T](in, len(in)/size))
	}}
}
