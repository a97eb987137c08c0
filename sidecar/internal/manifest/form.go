package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// fault is what is wrong with one field of an object. An author finds the field by its
// line, which locate adds.
type fault struct {
	path string // of the field, or of the one that misses it
	line int    // in the file; 0: not known
	text string
}

// Error implements error.
func (f *fault) Error() string {
	if f.line == 0 {
		return f.text
	}
	return fmt.Sprintf("line %d: %s", f.line, f.text)
}

func faultAt(path, format string, args ...any) error {
	return &fault{path: path, text: path + " " + fmt.Sprintf(format, args...)}
}

// misfits are the fields of a document that a type does not have, and the values that are
// not of its form. The decoder of Go finds them as well, one at a time, and names neither
// the value nor what to write instead.
func misfits(t reflect.Type, tree map[string]any) []error {
	var wrong []error
	fit(t, tree, "", &wrong)
	return wrong
}

var (
	quantity    = reflect.TypeFor[resource.Quantity]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

func fit(t reflect.Type, value any, path string, wrong *[]error) {
	if len(*wrong) > faultsMax { // no more are told
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case value == nil: // as if it were absent
		return
	case t == quantity:
		fitQuantity(value, path, wrong)
		return
	case t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler):
		return // it has a form of its own
	}
	switch v := value.(type) {
	case map[string]any:
		fitObject(t, v, path, wrong)
	case []any:
		if t.Kind() != reflect.Slice || t.Elem().Kind() == reflect.Uint8 {
			*wrong = append(*wrong, faultAt(path, "is a list, want %s", wanted(t)))
			return
		}
		for i, e := range v {
			fit(t.Elem(), e, fmt.Sprintf("%s[%d]", path, i), wrong)
		}
	default:
		fitScalar(t, v, path, wrong)
	}
}

func fitObject(t reflect.Type, v map[string]any, path string, wrong *[]error) {
	within := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch t.Kind() {
	case reflect.Map:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			fit(t.Elem(), v[name], within(name), wrong)
		}
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		fieldsOf(t, fields)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if f, known := fields[name]; known {
				fit(f, v[name], within(name), wrong)
				continue
			}
			if len(*wrong) > faultsMax {
				return
			}
			text := fmt.Sprintf("unknown field %q", within(name))
			if near := nearest(name, slices.Sorted(maps.Keys(fields))); near != "" {
				text += fmt.Sprintf(": is %s meant?", near)
			}
			*wrong = append(*wrong, &fault{path: within(name), text: text})
		}
	default:
		*wrong = append(*wrong, faultAt(path, "has fields of its own, want %s", wanted(t)))
	}
}

// fieldsOf are the fields of a struct by their names in a document.
func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			fieldsOf(f.Type, into)
		case name != "" && name != "-":
			into[name] = f.Type
		}
	}
}

func fitScalar(t reflect.Type, v any, path string, wrong *[]error) {
	good := false
	switch v.(type) {
	case bool:
		good = t.Kind() == reflect.Bool
	case string:
		good = t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 // bytes are text
	case int64:
		good = t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
	case float64:
		good = t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
	}
	if good {
		return
	}
	if text, is := v.(string); is {
		*wrong = append(*wrong, faultAt(path, "is the text %q, want %s", text, wanted(t)))
		return
	}
	*wrong = append(*wrong, faultAt(path, "is %v, want %s", v, wanted(t)))
}

// wanted is a type for an author of a document.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false, without quotes"
	case reflect.String:
		return "a text: put it into quotes"
	case reflect.Float32, reflect.Float64:
		return "a number, without quotes"
	case reflect.Slice:
		return "a list: put a dash before each entry"
	case reflect.Map, reflect.Struct:
		return "fields of its own"
	}
	return "a whole number, without quotes"
}

func fitQuantity(v any, path string, wrong *[]error) {
	text := fmt.Sprint(v)
	switch v.(type) {
	case map[string]any, []any, bool:
	default:
		if _, err := resource.ParseQuantity(text); err == nil {
			return
		}
	}
	*wrong = append(*wrong, faultAt(path, "is %q, want %s", text, meant(path, text)))
}

// sizeText is an amount as people write one: 64MB, 64 MiB, 1.5gb.
var sizeText = regexp.MustCompile(`(?i)^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe])i?(?:b|bytes?|o)?\s*$`)

// coresText is a number of processors as people write it: 1 core, 2 CPUs.
var coresText = regexp.MustCompile(`(?i)^\s*([0-9]+(?:\.[0-9]+)?)\s*(?:cores?|v?cpus?)\s*$`)

// meant is the quantity for the text of a field that is none.
func meant(path, text string) string {
	m := sizeText.FindStringSubmatch(text)
	if cores := coresText.FindStringSubmatch(text); strings.HasSuffix(path, ".cpu") && cores != nil {
		return cores[1]
	} else if strings.HasSuffix(path, ".cpu") {
		return "a number of processors, such as 1 or 1.5, or of thousandths of one, such as 250m"
	}
	if m == nil {
		return "a number with k, M, G or T (powers of 1000) or Ki, Mi, Gi or Ti (powers of 1024) behind it, such as 64Mi"
	}
	unit := strings.ToUpper(m[2])
	binary := m[1] + unit + "i"
	if strings.Contains(strings.ToLower(text), "i") {
		return binary
	}
	if unit == "K" {
		unit = "k"
	}
	return fmt.Sprintf("%s (powers of 1000) or %s (powers of 1024)", m[1]+unit, binary)
}

// nearMax is the length of the longest name, in bytes, that can be a mistyped one.
const nearMax = 64

// nearest is the name that differs least from a mistyped one; "": none is near.
func nearest(name string, known []string) string {
	if len(name) > nearMax {
		return ""
	}
	best, least := "", 3
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return k
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least && 2*d < len(name) {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of bytes to insert, remove or replace between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
