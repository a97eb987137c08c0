package manifest

import (
	"slices"
	"strings"
	"testing"
)

// below returns every field that the schema has at one position of a pod.
func (s *schema) below(t *testing.T, steps ...string) map[string]*schema {
	t.Helper()
	for _, step := range steps {
		s = s.Properties[step]
		if s == nil {
			t.Fatalf("the schema has no %s", strings.Join(steps, "."))
		}
		if s.Items != nil {
			s = s.Items
		}
	}
	return s.Properties
}

// TestNothingIsForgotten checks that every field that a pod, its container, an environment
// variable, the job or its run policy can have is used, or reported as ignored.
func TestNothingIsForgotten(t *testing.T) {
	crd := readSchema(t, "mpijobs")
	for _, c := range []struct {
		name  string
		steps []string
		put   func(o map[string]any) map[string]any // o where the schema has it
	}{
		{"", nil, func(o map[string]any) map[string]any { return o }},
		{"spec.", []string{"spec"}, func(o map[string]any) map[string]any { return map[string]any{"spec": o} }},
		{"spec.runPolicy.", []string{"spec", "runPolicy"}, func(o map[string]any) map[string]any {
			return map[string]any{"spec": map[string]any{"runPolicy": o}}
		}},
		{"pod.", []string{"spec", "template", "spec"}, func(o map[string]any) map[string]any {
			return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": o}}}
		}},
		{"container.", []string{"spec", "template", "spec", "containers"}, func(o map[string]any) map[string]any {
			return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{o}}}}}
		}},
	} {
		for field := range crd.below(t, c.steps...) {
			path := c.name + field
			if slices.Contains([]string{"spec", "spec.template", "spec.runPolicy", "spec.template.spec", "pod.containers"}, path) {
				continue // the fields inside of it are checked one by one
			}
			f := File{written: c.put(map[string]any{field: "something"})}
			list := f.ignored(false)
			said := len(list) == 1 && slices.Equal(list[0].Fields, []string{path})
			if isUsed := slices.Contains(used, path); said == isUsed {
				t.Errorf("%s: looked at %v, and %v is ignored", path, isUsed, list)
			}
			if said && list[0].Why == otherReason {
				t.Errorf("%s is ignored without a reason: add it to reasons", path)
			}
		}
	}
}

// TestNullIsAbsent checks that null counts as absent, as for the API server.
func TestNullIsAbsent(t *testing.T) {
	f := File{written: map[string]any{"status": nil, "spec": map[string]any{"managedBy": nil, "devices": []any{}}}}
	if list := f.ignored(false); len(list) != 1 || list[0].Fields[0] != "spec.devices" {
		t.Errorf("%v", list)
	}
}
