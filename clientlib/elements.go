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

// typeNames are the types by their numbers.
var typeNames = [...]string{
	shm.TypeInt8: "int8", shm.TypeInt16: "int16", shm.TypeInt32: "int32", shm.TypeInt64: "int64",
	shm.TypeUint8: "uint8", shm.TypeUint16: "uint16", shm.TypeUint32: "uint32", shm.TypeUint64: "uint64",
	shm.TypeFloat32: "float32", shm.TypeFloat64: "float64", shm.TypeComplex64: "complex64", shm.TypeComplex128: "complex128",
}

// typeCode is the number of an element type in the shared-memory contract.
func typeCode[T Number]() uint8 { return typeCodes[reflect.TypeFor[T]().Kind()] }

// elements are the elements of a message: their memory, and their type, which the other
// side compares with its own. The type 0 fits every other: bytes are raw memory.
type elements struct {
	mem []byte
	typ uint8
}

// elementsOf are the elements of b.
func elementsOf[T Number](b []T) elements {
	e := elements{mem: bytesOf(b), typ: typeCode[T]()}
	if e.typ == shm.TypeUint8 {
		e.typ = 0
	}
	return e
}

// raw are bytes that may be anything: of structs, for instance.
func raw(b []byte) elements { return elements{mem: b} }

// mistyped is the error of a receive that has got a message of another type; nil: the
// types agree, or one of them is not known.
func (o *op) mistyped() error {
	if o.typ == 0 || o.sent == 0 || o.typ == o.sent || int(o.sent) >= len(typeNames) {
		return nil
	}
	return fmt.Errorf("%w: the message has elements of type %s, and the buffer %s: send and receive one type, or []byte", ErrInvalid, typeNames[o.sent], typeNames[o.typ])
}
