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

// fault is a fault of one field of an object. locate adds the field's line.
type fault struct {
	path string // path of the field, or of the object in which the field is missing
	line int    // line in the file; 0: unknown
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

// misfits returns the fields of a document that a type does not have, and the values of a
// wrong type. Go's decoder finds them as well, but one at a time, and its error has neither
// the value nor a remedy.
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
	if len(*wrong) > faultsMax { // no more are reported
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case value == nil: // null counts as absent
		return
	case t == quantity:
		fitQuantity(value, path, wrong)
		return
	case t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler):
		return // it has a format of its own
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

// fieldsOf collects the fields of a struct by their names in a document.
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

// wanted describes a type to the author of a document.
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

// sizeText matches an amount of memory as people write it: 64MB, 64 MiB, 1.5gb.
var sizeText = regexp.MustCompile(`(?i)^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe])i?(?:b|bytes?|o)?\s*$`)

// coresText matches a number of CPUs as people write it: 1 core, 2 CPUs.
var coresText = regexp.MustCompile(`(?i)^\s*([0-9]+(?:\.[0-9]+)?)\s*(?:cores?|v?cpus?)\s*$`)

// meant returns the quantity, or a description of it, for the text of a field that is not a
// quantity.
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

// nearMax bounds the length of a name, in bytes, that is compared with the known names.
const nearMax = 64

// nearest returns the known name that differs least from a mistyped one, or an empty text
// if none is near.
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

// distance returns the number of bytes to insert, remove or replace to turn one name into
// the other.
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
