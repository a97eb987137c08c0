package outrigger

import "reflect"

// kind is the family of a number type; with its size it is the type.
type kind uint8

const (
	kindInt kind = iota
	kindUint
	kindFloat
	kindComplex
)

func kindOf(v any) kind {
	switch t := reflect.TypeOf(v); t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return kindInt
	case reflect.Float32, reflect.Float64:
		return kindFloat
	case reflect.Complex64, reflect.Complex128:
		return kindComplex
	}
	return kindUint
}
