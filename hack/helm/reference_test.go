package helm

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the reference of docs/install.md again")

func unmarshal(text string, into any) error { return sigsyaml.UnmarshalStrict([]byte(text), into) }

// property is a part of values.schema.json.
type property struct {
	Description string
	Type        any // a name, or names
	Enum        []any
	Minimum     *float64
	Maximum     *float64
	Properties  map[string]*property
	Required    []string
	Additional  any `json:"additionalProperties"`
}

// rows describes the keys that hold values, in order of their names.
func rows(at string, p *property, defaults any) (list []string, err error) {
	if p.Description == "" {
		return nil, fmt.Errorf("%s has no description in the schema", at)
	}
	values, isMap := defaults.(map[string]any)
	if len(p.Properties) == 0 || isMap && len(values) == 0 {
		text, err := json.Marshal(defaults)
		return []string{fmt.Sprintf("| `%s` | `%s` | %s |", at, text, meaning(p))}, err
	}
	if p.Additional != false {
		return nil, fmt.Errorf("%s allows unknown keys", at)
	}
	var keys []string
	for k := range p.Properties {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for k := range values {
		if p.Properties[k] == nil {
			return nil, fmt.Errorf("%s.%s is not in the schema", at, k)
		}
	}
	for _, k := range keys {
		v, there := values[k]
		if !there {
			if at == "" && k == "global" {
				continue // Helm's own
			}
			return nil, fmt.Errorf("%s.%s has no value in values.yaml", at, k)
		}
		more, err := rows(strings.TrimPrefix(at+"."+k, "."), p.Properties[k], v)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

func meaning(p *property) string {
	text := p.Description
	if p.Minimum != nil && p.Maximum != nil {
		text += fmt.Sprintf(" %v to %v.", *p.Minimum, *p.Maximum)
	}
	var names []string
	for _, e := range p.Enum {
		if e != "" {
			names = append(names, fmt.Sprintf("`%v`", e))
		}
	}
	if len(names) > 0 {
		text += " One of " + strings.Join(names, ", ") + "."
	}
	return text
}

// TestReference: every value has a description, a default and a row in
// docs/install.md.
func TestReference(t *testing.T) {
	const begin, end = "<!-- values: begin, written by go test -update in hack/helm -->\n", "<!-- values: end -->\n"
	read := func(path string) []byte {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	schema := new(property)
	if err := json.Unmarshal(read(filepath.Join(Chart, "values.schema.json")), schema); err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := unmarshal(string(read(filepath.Join(Chart, "values.yaml"))), &defaults); err != nil {
		t.Fatal(err)
	}
	list, err := rows("", schema, defaults)
	if err != nil {
		t.Fatal(err)
	}
	table := "| value | default | meaning |\n|---|---|---|\n" + strings.Join(list, "\n") + "\n"
	const page = "../../docs/install.md"
	text := string(read(page))
	before, rest, ok := strings.Cut(text, begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the values", page)
	}
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the values as they are: run go test -update in hack/helm\n%s", page, table)
	}
	if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil { //nolint:gosec // a page of the documentation
		t.Fatal(err)
	}
}

// unguarded returns the keys of a section that a template would take for off where an
// upgrade has reused the values of a chart that did not have them: helm upgrade
// --reuse-values. Without issuer.checkAddress a stolen token would be good, and
// no administrator would notice.
func unguarded(at string, p *property, values map[string]any) (list []string) {
	for k, v := range values {
		of := p.Properties[k]
		section, isMap := v.(map[string]any)
		if (v == true || at == "") && !slices.Contains(p.Required, k) {
			list = append(list, strings.TrimPrefix(at+"."+k, "."))
		}
		if isMap && of != nil && of.Additional == false {
			list = append(list, unguarded(strings.TrimPrefix(at+"."+k, "."), of, section)...)
		}
	}
	return list
}

// TestRequired: sections, and switches that are on by default, have to be there.
func TestRequired(t *testing.T) {
	schema, defaults := new(property), map[string]any{}
	raw, err := os.ReadFile(filepath.Join(Chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(filepath.Join(Chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(raw, schema), unmarshal(string(values), &defaults)); err != nil {
		t.Fatal(err)
	}
	if list := unguarded("", schema, defaults); len(list) > 0 {
		t.Errorf("values.schema.json does not require %v: an upgrade that lacks them would turn them off", list)
	}
}

// TestDashboard: it asks for metrics that there are.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(Chart, "files/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID                 int
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil || len(board.Panels) == 0 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	sources := ""
	for _, path := range []string{"../../sidecar/internal/obs/metrics.go", "../../devplugin/cmd/outrigger-devplugin/metrics.go", "../../operator/internal/controller/metrics.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources += string(text)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if p.Description == "" || ids[p.ID] {
			t.Errorf("%s has the number %d and the description %q", p.Title, p.ID, p.Description)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			for _, word := range strings.FieldsFunc(q.Expr, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
				name, ours := strings.CutPrefix(word, "outrigger_")
				name = strings.TrimPrefix(strings.TrimSuffix(name, "_bucket"), "devplugin_")
				// Every replica of the operator has this one.
				if word == "outrigger_mpijobs" && !strings.HasPrefix(q.Expr, "max by (") {
					t.Errorf("%s: %s counts each job once for each replica", p.Title, q.Expr)
				}
				if ours && !strings.Contains(sources, `"`+name+`"`) && !strings.Contains(sources, `"`+word+`"`) && !strings.Contains(sources, `"`+strings.TrimSuffix(word, "_bucket")+`"`) {
					t.Errorf("%s asks for %s, which no program exports", p.Title, word)
				}
			}
		}
	}
}
