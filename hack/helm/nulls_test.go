package helm

import (
	"os"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// TestNulls: whatever value is null, which takes a chart's default away, the schema says
// that it is missing, or the objects are ones that Kubernetes knows, of programs whose
// flags have values.
func TestNulls(t *testing.T) {
	raw, err := os.ReadFile(Chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]any{}
	if err := sigsyaml.Unmarshal(raw, &defaults); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths(defaults) {
		values := map[string]any{}
		if err := sigsyaml.Unmarshal([]byte(everything), &values); err != nil {
			t.Fatal(err)
		}
		unset(values, path)
		text, err := sigsyaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := Render(string(text))
		name := strings.Join(path, ".")
		if err != nil && !strings.Contains(err.Error(), "missing property '"+path[len(path)-1]+"'") {
			t.Errorf("%s: null: %v", name, err)
		}
		for _, o := range list {
			if err := known(o); err != nil {
				t.Errorf("%s: null makes the %s %s: %v", name, o.GetKind(), o.GetName(), err)
			}
		}
		for of, p := range pods(t, list) {
			for _, a := range p.Containers[0].Args {
				if strings.HasSuffix(a, "=") || strings.Contains(a, "nil>") {
					t.Errorf("%s: null gives %s the argument %s", name, of, a)
				}
			}
		}
	}
}

// TestNullsInside: what a NetworkPolicy and the agent's configuration take for absent
// may be written so.
func TestNullsInside(t *testing.T) {
	const values = `
networkPolicy: {metricsFrom: [{namespaceSelector: null, podSelector: {matchLabels: {app: prometheus}}}]}
devicePlugin: {enabled: true, config: {pools: null, sriov: null}}`
	for _, o := range render(t, values) {
		if err := known(o); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// paths returns all keys of nested values.
func paths(values map[string]any) [][]string {
	var all [][]string
	for key, v := range values {
		all = append(all, []string{key})
		if under, ok := v.(map[string]any); ok {
			for _, p := range paths(under) {
				all = append(all, append([]string{key}, p...))
			}
		}
	}
	return all
}

// unset makes one of nested values null.
func unset(values map[string]any, path []string) {
	for _, key := range path[:len(path)-1] {
		under, ok := values[key].(map[string]any)
		if !ok {
			under = map[string]any{}
			values[key] = under
		}
		values = under
	}
	values[path[len(path)-1]] = nil
}
