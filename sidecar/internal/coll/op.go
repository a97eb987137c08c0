package coll

import "fmt"

// Type is the type of an element. The numbers are those of the shared-memory
// protocol and are never given to another type.
type Type uint8

// Elements are little-endian; integers are two's complement, floats IEEE 754,
// and complex numbers a real and an imaginary float.
const (
	Int8       Type = 1
	Int16      Type = 2
	Int32      Type = 3
	Int64      Type = 4
	Uint8      Type = 5
	Uint16     Type = 6
	Uint32     Type = 7
	Uint64     Type = 8
	Float32    Type = 9
	Float64    Type = 10
	Complex64  Type = 11
	Complex128 Type = 12
)

// Op is an operation on two elements. The numbers are those of the
// shared-memory protocol and are never given to another operation.
type Op uint8

const (
	Sum  Op = 1
	Prod Op = 2
	Min  Op = 3
	Max  Op = 4
	// LAnd, LOr and LXor treat every number but 0 as true, and their results are 0 or 1.
	LAnd Op = 5
	LOr  Op = 6
	LXor Op = 7
	BAnd Op = 8
	BOr  Op = 9
	BXor Op = 10
	// Replace and NoOp are for one-sided accumulation (MPI 4.1, section 12.3.4): the result is
	// the source, or the previous value of the target.
	Replace Op = 11
	NoOp    Op = 12
	// User is a function of the application, which applies it itself.
	User Op = 255
)

var typeSizes = [...]int{0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16}

var typeNames = [...]string{
	"no type", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
	"float32", "float64", "complex64", "complex128",
}

var opNames = [...]string{
	"no operation", "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "replace", "noop",
}

// Size returns the bytes of one element, or 0 if t is not a type.
func (t Type) Size() int {
	if int(t) < len(typeSizes) {
		return typeSizes[t]
	}
	return 0
}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (o Op) String() string {
	switch {
	case int(o) < len(opNames):
		return opNames[o]
	case o == User:
		return "user"
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

func (t Type) integer() bool { return t >= Int8 && t <= Uint64 }

func (t Type) signed() bool { return t >= Int8 && t <= Int64 }

func (t Type) complex() bool { return t == Complex64 || t == Complex128 }

// Valid returns nil if Apply supports op on elements of type typ. The pairs are those of MPI
// 4.1, section 6.9.2: logical and bitwise operations need integers, and minimum and maximum
// need any type but complex numbers.
func Valid(op Op, typ Type) error {
	switch {
	case typ.Size() == 0:
		return fmt.Errorf("coll: %d is no element type; use Int8 (1) to Complex128 (12)", uint8(typ))
	case op == User:
		return fmt.Errorf("coll: a user operation is applied by the application, not by Apply")
	case op < Sum || op > NoOp:
		return fmt.Errorf("coll: %d is no operation; use Sum (1) to NoOp (12)", uint8(op))
	case op >= LAnd && op <= BXor && !typ.integer():
		return fmt.Errorf("coll: %v is not defined on %v; it needs an integer type", op, typ)
	case (op == Min || op == Max) && typ.complex():
		return fmt.Errorf("coll: %v is not defined on %v; complex numbers have no order", op, typ)
	}
	return nil
}
