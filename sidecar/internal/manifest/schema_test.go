package manifest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const definitions = "../../../charts/outrigger/generated/crds/outrigger.dev_"

// schema is the part of a definition's schema that this package copies.
type schema struct {
	Description string
	Properties  map[string]*schema
	Items       *schema
	Required    []string
	Default     any
	Minimum     *float64
	Maximum     *float64
	MinLength   *int
	MaxLength   *int
	MaxItems    *int
	Enum        []string
	Validations []struct{ Rule, Message, FieldPath string } `json:"x-kubernetes-validations"`
}

func readSchema(t *testing.T, plural string) *schema {
	t.Helper()
	text, err := os.ReadFile(definitions + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return &crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// each calls visit for a schema's fields, except for status and the fields that Kubernetes
// defines for pods.
func (s *schema) each(path string, visit func(path string, s *schema, required bool)) {
	for name, p := range s.Properties {
		below := strings.TrimPrefix(path+"."+name, ".")
		if slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, below) {
			continue
		}
		visit(below, p, slices.Contains(s.Required, name))
		if below == "spec.template" {
			continue
		}
		p.each(below, visit)
		if p.Items != nil {
			p.Items.each(below+"[]", visit)
		}
	}
}

func number[T int | float64](p *T) int64 {
	if p == nil {
		return 0
	}
	return int64(*p)
}

// asField returns the field that this package must have for a schema, or nil for none.
func (s *schema) asField(path string, required bool) *field {
	f := &field{
		path: path, required: required, enum: s.Enum, min: number(s.Minimum), max: number(s.Maximum),
		length: [2]int{int(number(s.MinLength)), int(number(s.MaxLength) + number(s.MaxItems))},
	}
	f.preset = s.Default
	if n, ok := s.Default.(float64); ok {
		f.preset = int64(n)
	}
	says := required || s.Default != nil || s.Minimum != nil || s.Maximum != nil || s.Enum != nil || s.MinLength != nil || s.MaxLength != nil || s.MaxItems != nil
	if !says {
		return nil
	}
	return f
}

// TestFieldsAreTheSchemas checks that defaults, bounds and enumerations are exactly those
// of the generated definitions.
func TestFieldsAreTheSchemas(t *testing.T) {
	for plural, have := range map[string][]field{"mpijobs": jobFields, "fabricprofiles": profileFields} {
		var want []field
		readSchema(t, plural).each("", func(path string, s *schema, required bool) {
			if f := s.asField(path, required); f != nil {
				want = append(want, *f)
			}
		})
		byPath := func(a, b field) int { return strings.Compare(a.path, b.path) }
		slices.SortFunc(want, byPath)
		have := slices.SortedFunc(slices.Values(have), byPath)
		sortWords := func(list []field) {
			for i := range list {
				list[i].enum = slices.Sorted(slices.Values(list[i].enum))
			}
		}
		sortWords(want)
		sortWords(have)
		if diff := cmp.Diff(want, have, cmp.AllowUnexported(field{})); diff != "" {
			t.Errorf("%s: the schema has -, fields.go has +:\n%s", plural, diff)
		}
	}
}

// table is api/v1alpha1/testdata/refused.yaml.
type table struct {
	Job, Profile                 string
	TakenJobs                    []struct{ From, To string }
	RefusedJobs, RefusedProfiles []struct{ From, To, Want string }
}

func readTable(t testing.TB) *table {
	t.Helper()
	text, err := os.ReadFile("../../../api/v1alpha1/testdata/refused.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := new(table)
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: outrigger.dev/v1alpha1\nkind: "
	out.Job, out.Profile = head+"MPIJob\n"+out.Job, head+"FabricProfile\n"+out.Profile
	return out
}

// withProfile returns a job that names the profile good, and that profile.
func (t *table) withProfile(profile string) string {
	return strings.Replace(t.Job, "  template:", "  profileName: good\n  template:", 1) + "---\n" + profile
}

// TestRefused checks that what the API server refuses is refused here, with the same text
// if the schema has a text.
func TestRefused(t *testing.T) {
	all := readTable(t)
	right := []string{all.Job, all.withProfile(all.Profile)}
	for _, c := range all.TakenJobs {
		right = append(right, strings.Replace(all.Job, c.From, c.To, 1))
	}
	for _, good := range right {
		if _, err := Read([]byte(good)); err != nil {
			t.Errorf("refused:\n%s\n%v", good, err)
		}
	}
	said := ""
	refuse := func(text, from, to, want string, whole func(string) string) {
		changed := strings.Replace(text, from, to, 1)
		if changed == text {
			t.Fatalf("%q is not in\n%s", from, text)
		}
		_, err := Read([]byte(whole(changed)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s -> %s\n\terror: %v\n\twant one about: %s", from, to, err, want)
		}
		said += fmt.Sprint(err, "\n")
	}
	for _, c := range all.RefusedJobs {
		refuse(all.Job, c.From, c.To, c.Want, func(job string) string { return job })
	}
	for _, c := range all.RefusedProfiles {
		refuse(all.Profile, c.From, c.To, c.Want, all.withProfile)
	}
	for _, plural := range []string{"mpijobs", "fabricprofiles"} {
		for _, message := range readSchema(t, plural).messages() {
			if !strings.Contains(said, message) {
				t.Errorf("the schema of %s has a rule that no change of refused.yaml breaks here: %s", plural, message)
			}
		}
	}
}

// messages returns the messages of the rules that are about an object and not about a
// change of it.
func (s *schema) messages() []string {
	var list []string
	var collect func(path string, s *schema, required bool)
	collect = func(path string, s *schema, required bool) {
		for _, v := range s.Validations {
			if !strings.Contains(v.Rule, "oldSelf") {
				list = append(list, v.Message)
			}
		}
		if s.Items != nil {
			collect(path+"[]", s.Items, required)
		}
	}
	collect("", s, false)
	s.each("", collect)
	return list
}

// TestRulesPointAtTheirFields checks that a rule of the whole spec has the field that
// breaks it, unless it is about several fields, and that no rule divides by, or relies on,
// a value that another rule refuses.
func TestRulesPointAtTheirFields(t *testing.T) {
	several := []string{"mpi needs launchMode", "mpiProgress", "memory.allocationsFrom"}
	for _, v := range readSchema(t, "mpijobs").Properties["spec"].Validations {
		if v.FieldPath == "" && !slices.ContainsFunc(several, func(begins string) bool { return strings.HasPrefix(v.Message, begins) }) {
			t.Errorf("no field: %s", v.Message)
		}
		if strings.Contains(v.Rule, "/ self.ranksPerPod") && !strings.HasPrefix(v.Rule, "self.ranksPerPod < 1 || ") {
			t.Errorf("it may divide by zero: %s", v.Rule)
		}
		if strings.Contains(v.Rule, "containers[0]") && !strings.Contains(v.Rule, "size(self.template.spec.containers) == 0 ||") {
			t.Errorf("its index may be out of bounds: %s", v.Rule)
		}
	}
}
