package v1alpha1

import (
	"os"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestFieldsAreOnlyAdded: a definition has all fields of that of an earlier release, with the
// types that they had, so that objects of either serve an operator of the other.
func TestFieldsAreOnlyAdded(t *testing.T) {
	for _, name := range []string{"outrigger.dev_mpijobs.yaml", "outrigger.dev_fabricprofiles.yaml"} {
		earlier := fieldsOf(t, "../../e2e/chart/testdata/older/chart/generated/crds/"+name)
		now := fieldsOf(t, "../../charts/outrigger/generated/crds/"+name)
		if len(earlier) < 10 {
			t.Errorf("%s: %d fields of the earlier release", name, len(earlier))
		}
		for field, kind := range earlier {
			if now[field] != kind {
				t.Errorf("%s: field %s was of type %q, and is %q", name, field, kind, now[field])
			}
		}
	}
}

// TestColumns: `kubectl get mpijob -o wide` says which rank has failed, and has the message of
// the condition that is true.
func TestColumns(t *testing.T) {
	text, err := os.ReadFile("../../charts/outrigger/generated/crds/outrigger.dev_mpijobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"Failed Rank": 0, "Reason": 0, "Message": 1, "Failure": 1}
	for _, c := range d.Spec.Versions[0].AdditionalPrinterColumns {
		if priority, ok := want[c.Name]; ok && priority == c.Priority {
			delete(want, c.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no columns %v, by their priority", want)
	}
}

// fieldsOf returns the fields of the one version of a definition, with their types.
func fieldsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	if len(d.Spec.Versions) != 1 || d.Spec.Versions[0].Name != "v1alpha1" {
		t.Fatalf("%s has %d versions", path, len(d.Spec.Versions))
	}
	fields := map[string]string{}
	gather(d.Spec.Versions[0].Schema.OpenAPIV3Schema, "", fields)
	return fields
}

func gather(s *apiextensionsv1.JSONSchemaProps, at string, fields map[string]string) {
	for name := range s.Properties {
		p := s.Properties[name]
		fields[at+"."+name] = p.Type
		gather(&p, at+"."+name, fields)
	}
	if s.Items != nil && s.Items.Schema != nil {
		fields[at+"[]"] = s.Items.Schema.Type
		gather(s.Items.Schema, at+"[]", fields)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		gather(s.AdditionalProperties.Schema, at+"{}", fields)
	}
}
