package v1alpha1

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// field is one field of a generated schema.
type field struct {
	Type        string            `json:"type"`
	Format      string            `json:"format"`
	Description string            `json:"description"`
	Enum        []any             `json:"enum"`
	Default     any               `json:"default"`
	MaxLength   *int              `json:"maxLength"`
	MaxItems    *int              `json:"maxItems"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	Required    []string          `json:"required"`
	Properties  map[string]*field `json:"properties"`
	Items       *field            `json:"items"`
	IntOrString bool              `json:"x-kubernetes-int-or-string"`
	ListType    string            `json:"x-kubernetes-list-type"`
	ListMapKeys []string          `json:"x-kubernetes-list-map-keys"`
}

// foreign are the parts that Kubernetes has written.
var foreign = []string{"apiVersion", "kind", "metadata", "spec.template", "status.conditions[]"}

// excused are fields that break a rule, each for a reason.
var excused = map[string]string{
	"spec.runPolicy.suspend":              "boolean: the field of batch/v1 Job that queueing controllers and people know",
	"spec.runPolicy.restartLimit":         "pointer with a default: a 0 that is applied keeps its owner, as an absent field would not",
	"spec.runPolicy.deadlockAfterSeconds": "pointer with a default: 0 is never, and not the default",
}

// TestConventions holds the generated schema to the rules of Kubernetes' API
// conventions that matter here. It stands in for kube-api-linter
// (sigs.k8s.io/kube-api-linter), which the module proxy that this project is
// built from does not have. What it looks at is the result, not the markers, so
// that a marker which generates nothing is noticed too.
func TestConventions(t *testing.T) {
	used := map[string]bool{}
	for file, object := range map[string]reflect.Type{
		"mpijobs": reflect.TypeFor[MPIJob](), "fabricprofiles": reflect.TypeFor[FabricProfile](),
	} {
		text, err := os.ReadFile("../../charts/outrigger/generated/crds/outrigger.dev_" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPI field `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		r := rules{file: file, used: used, complain: func(format string, a ...any) { t.Errorf(format, a...) }}
		r.object("", &d.Spec.Versions[0].Schema.OpenAPI, object)
		if r.seen < 8 {
			t.Errorf("%s: only %d fields were found", file, r.seen)
		}
	}
	for path := range excused {
		if !used[path] {
			t.Errorf("%s needs no excuse any more", path)
		}
	}
}

// TestConventionsBite shows that each rule finds what breaks it.
func TestConventionsBite(t *testing.T) {
	type bad struct {
		Field *string `json:"field"`
	}
	for want, f := range map[string]*field{
		"boolean":     {Type: "boolean", Description: "field"},
		"number":      {Type: "number", Description: "field"},
		"bounds":      {Type: "integer", Description: "field"},
		"maxLength":   {Type: "string", Description: "field"},
		"maxItems":    {Type: "array", Description: "field", Items: &field{Type: "string", Enum: []any{"a"}}},
		"description": {Type: "string", Enum: []any{"a"}, Description: "A field."},
		"omitempty":   {Type: "string", Enum: []any{"a"}, Description: "field"},
		"pointer":     {Type: "string", Enum: []any{"a"}, Description: "field", Default: "a"},
	} {
		found := false
		r := rules{used: map[string]bool{}, complain: func(format string, _ ...any) { found = found || strings.Contains(format, want) }}
		r.object("", &field{Properties: map[string]*field{"field": f}}, reflect.TypeFor[bad]())
		if !found {
			t.Errorf("no complaint about: %s", want)
		}
	}
}

// rules checks a schema together with the Go type that it was generated from.
type rules struct {
	file     string
	seen     int
	used     map[string]bool // excuses
	complain func(format string, a ...any)
}

func (r *rules) object(path string, f *field, of reflect.Type) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	for name, p := range f.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if slices.Contains(foreign, at) {
			continue
		}
		r.seen++
		s, tag := member(of, name)
		if s == nil {
			r.complain("%s: %s is no field of %v", r.file, at, of)
			continue
		}
		r.member(at, name, p, s, tag, slices.Contains(f.Required, name))
		r.value(at, p, s.Type)
	}
}

// member returns the field of a struct with a JSON name, and its tag.
func member(of reflect.Type, name string) (*reflect.StructField, string) {
	for i := range of.NumField() {
		f := of.Field(i)
		if tag := f.Tag.Get("json"); tag == name || strings.HasPrefix(tag, name+",") {
			return &f, tag
		}
	}
	return nil, ""
}

func (r *rules) member(at, name string, p *field, s *reflect.StructField, tag string, required bool) {
	word, _, _ := strings.Cut(strings.ReplaceAll(p.Description, "\n", " "), " ")
	if strings.Trim(word, ":,.") != name {
		r.complain("%s: the description of %s begins with %q, want its name", r.file, at, word)
	}
	if !required && !strings.Contains(tag, ",omitempty") && !strings.Contains(tag, ",omitzero") {
		r.complain("%s: %s is optional without omitempty or omitzero", r.file, at)
	}
	if p.Default != nil && s.Type.Kind() == reflect.Pointer && !r.excuse(at) {
		r.complain("%s: %s has a default and is a pointer for nothing", r.file, at)
	}
}

// value checks a field's own type, and what is in it.
func (r *rules) value(at string, p *field, of reflect.Type) {
	switch p.Type {
	case "boolean":
		if !r.excuse(at) {
			r.complain("%s: %s is a boolean; an enum can get a third value", r.file, at)
		}
	case "number":
		r.complain("%s: %s is a number that need not be whole", r.file, at)
	case "integer":
		if p.Minimum == nil || p.Maximum == nil {
			r.complain("%s: %s is an integer without bounds", r.file, at)
		}
	case "string":
		if p.MaxLength == nil && p.Enum == nil && p.Format != "date-time" {
			r.complain("%s: %s is a string without maxLength or enum", r.file, at)
		}
	case "array":
		if p.MaxItems == nil || p.ListType == "" || p.ListType == "map" && len(p.ListMapKeys) == 0 {
			r.complain("%s: %s is a list without maxItems, list type or keys", r.file, at)
		}
		if !slices.Contains(foreign, at+"[]") {
			item := of.Elem()
			r.value(at+"[]", p.Items, item)
		}
	case "object":
		r.object(at, p, of)
	default:
		if !p.IntOrString { // a quantity
			r.complain("%s: %s is of type %q", r.file, at, p.Type)
		}
	}
}

func (r *rules) excuse(at string) bool {
	r.used[at] = true
	return excused[at] != ""
}
