package outrigger

import (
	"fmt"
	"reflect"
)

// run is a contiguous part of a struct without padding.
type run struct{ at, n int }

// runsMax bounds the parts of one element: each costs a copy on both sides.
const runsMax = 4096

// runsOf returns the parts of a type that are sent: its numbers, without the padding between them.
// path names the type in errors.
func runsOf(t reflect.Type, path string) ([]run, error) {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return []run{{0, int(t.Size())}}, nil
	case reflect.Array:
		return runsOfArray(t, path)
	case reflect.Struct:
		return runsOfStruct(t, path)
	}
	return nil, fmt.Errorf("%w: %s is a %s, and a message has numbers, and arrays and structs of them; %s", ErrInvalid, path, t, insteadOf(t.Kind()))
}

// insteadOf returns the remedy for a field that cannot be sent.
func insteadOf(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "use a uint8"
	case reflect.String:
		return "use a [N]byte, or send the text as a message of its own"
	case reflect.Slice, reflect.Pointer:
		return "use an array, or send what it points to as a message of its own"
	}
	return "leave it out of the type that is sent"
}

func runsOfStruct(t reflect.Type, path string) (list []run, err error) {
	for i := range t.NumField() {
		f := t.Field(i)
		part, err := runsOf(f.Type, path+"."+f.Name)
		if err != nil {
			return nil, err
		}
		if list, err = join(list, part, int(f.Offset), path); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func runsOfArray(t reflect.Type, path string) (list []run, err error) {
	part, err := runsOf(t.Elem(), path+"[]")
	size := int(t.Elem().Size())
	switch {
	case err != nil || len(part) == 0 || t.Len() == 0:
		return nil, err
	case len(part) == 1 && part[0].n == size: // no padding: one run, however long the array is
		return []run{{0, size * t.Len()}}, nil
	}
	for i := range t.Len() {
		if list, err = join(list, part, i*size, path); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// join appends the runs of a part at an offset. Runs that touch become one.
func join(list, part []run, at int, path string) ([]run, error) {
	for _, r := range part {
		r.at += at
		if last := len(list) - 1; last >= 0 && list[last].at+list[last].n == r.at {
			list[last].n += r.n
			continue
		}
		if len(list) == runsMax {
			return nil, fmt.Errorf("%w: %s has padding in more than %d places; order its fields by size, largest first", ErrInvalid, path, runsMax)
		}
		list = append(list, r)
	}
	return list, nil
}
