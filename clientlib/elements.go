package outrigger

import (
	"fmt"
	"reflect"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// typeCodes are the numbers of element types in the shared-memory contract (LAYOUT §7).
var typeCodes = [reflect.Complex128 + 1]uint8{
	reflect.Int8: shm.TypeInt8, reflect.Int16: shm.TypeInt16, reflect.Int32: shm.TypeInt32, reflect.Int64: shm.TypeInt64, reflect.Int: shm.TypeInt64,
	reflect.Uint8: shm.TypeUint8, reflect.Uint16: shm.TypeUint16, reflect.Uint32: shm.TypeUint32, reflect.Uint64: shm.TypeUint64, reflect.Uint: shm.TypeUint64,
	reflect.Float32: shm.TypeFloat32, reflect.Float64: shm.TypeFloat64, reflect.Complex64: shm.TypeComplex64, reflect.Complex128: shm.TypeComplex128,
}

// typeNames are the names of the types by their numbers.
var typeNames = [...]string{
	shm.TypeInt8: "int8", shm.TypeInt16: "int16", shm.TypeInt32: "int32", shm.TypeInt64: "int64",
	shm.TypeUint8: "uint8", shm.TypeUint16: "uint16", shm.TypeUint32: "uint32", shm.TypeUint64: "uint64",
	shm.TypeFloat32: "float32", shm.TypeFloat64: "float64", shm.TypeComplex64: "complex64", shm.TypeComplex128: "complex128",
}

// typeCode returns the number of an element type in the shared-memory contract.
func typeCode[T Number]() uint8 { return typeCodes[reflect.TypeFor[T]().Kind()] }

// elements are the elements of a message: their memory, and their type, which the receiver compares
// with its own. The type 0 matches every other one: bytes are raw memory.
type elements struct {
	mem []byte
	typ uint8
}

// elementsOf returns the elements of b.
func elementsOf[T Number](b []T) elements {
	e := elements{mem: bytesOf(b), typ: typeCode[T]()}
	if e.typ == shm.TypeUint8 {
		e.typ = 0
	}
	return e
}

// raw returns elements of any type, such as structs, as bytes.
func raw(b []byte) elements { return elements{mem: b} }

// mistyped returns an error if a receive has matched a message of another type, and nil if the types
// agree or one of them is not known.
func (o *op) mistyped() error {
	if o.typ == 0 || o.sent == 0 || o.typ == o.sent || int(o.sent) >= len(typeNames) {
		return nil
	}
	return fmt.Errorf("%w: the message has elements of type %s, and the buffer %s: send and receive one type, or []byte", ErrInvalid, typeNames[o.sent], typeNames[o.typ])
}
