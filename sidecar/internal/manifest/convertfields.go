package manifest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// unknown returns an error that names the fields that a conversion does not read.
func unknown(path string, m map[string]any, known ...string) error {
	var strange []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, name) && m[name] != nil {
			strange = append(strange, path+"."+name)
		}
	}
	if strange == nil {
		return nil
	}
	return fmt.Errorf("%s cannot be converted: remove it if the job does not need it", strings.Join(strange, ", "))
}

// formed returns an error that names the fields whose value is not of type T. Without it
// they would count as absent.
func formed[T int64 | string | bool](path string, m map[string]any, names ...string) error {
	var wrong []error
	for _, name := range names {
		if _, ok := m[name].(T); !ok && m[name] != nil {
			var want T
			wrong = append(wrong, faultAt(path+"."+name, "is %v, want %s", m[name], wanted(reflect.TypeOf(want))))
		}
	}
	return errors.Join(wrong...)
}

// tree returns a map within maps, or an empty map if there is none.
func tree(m map[string]any, names ...string) map[string]any {
	for _, name := range names {
		m, _ = m[name].(map[string]any)
	}
	if m == nil {
		return map[string]any{}
	}
	return m
}

func list(m map[string]any, name string) []any {
	l, _ := m[name].([]any)
	return l
}

func only(m map[string]any, names ...string) map[string]any {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(k string, _ any) bool { return !slices.Contains(names, k) })
	return out
}

func words(l []any) []string {
	var all []string
	for _, w := range l {
		all = append(all, fmt.Sprint(w))
	}
	return all
}

// whole returns an integer of a file, or a default.
func whole(v any, without int64) int64 {
	if n, ok := v.(int64); ok {
		return n
	}
	return without
}
