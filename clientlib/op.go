package outrigger

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Op is an operation of a reduction.
type Op struct {
	code        uint8
	commutative bool
	call        func(inout, in []byte) // user-defined
	size        int                    // element size of call
}

// The predefined operations. Logical ones take zero as false and give 0 or 1.
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

// OpFunc makes an operation of a function that computes inout[i] = in[i] op
// inout[i], associatively. It runs in this process, inside calls of this
// library, so that such a reduction does not move on while the application
// computes; it must not call the library itself.
func OpFunc[T Number](commutative bool, f func(inout, in []T)) Op {
	size := sizeOf[T]()
	return Op{code: shm.ReduceUser, commutative: commutative, size: size, call: func(inout, in []byte) {
		f(sliceOf[T](inout, len(inout)/size), sliceOf[T](in, len(in)/size))
	}}
}

// typeCode is the number of an element type in the shared-memory contract.
func typeCode[T Number]() uint8 {
	var v T
	switch kindOf(v) {
	case kindInt:
		return map[int]uint8{1: shm.TypeInt8, 2: shm.TypeInt16, 4: shm.TypeInt32, 8: shm.TypeInt64}[sizeOf[T]()]
	case kindUint:
		return map[int]uint8{1: shm.TypeUint8, 2: shm.TypeUint16, 4: shm.TypeUint32, 8: shm.TypeUint64}[sizeOf[T]()]
	case kindFloat:
		return map[int]uint8{4: shm.TypeFloat32, 8: shm.TypeFloat64}[sizeOf[T]()]
	}
	return map[int]uint8{8: shm.TypeComplex64, 16: shm.TypeComplex128}[sizeOf[T]()]
}
