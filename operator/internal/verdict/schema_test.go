package verdict

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// definition is the generated resource definition that these tests read.
const definition = "../../../charts/outrigger/generated/crds/outrigger.dev_mpijobs.yaml"

// schema is the part of OpenAPI that the status uses.
type schema struct {
	Type       string             `json:"type"`
	Format     string             `json:"format"`
	Pattern    string             `json:"pattern"`
	Enum       []any              `json:"enum"`
	MaxLength  *int               `json:"maxLength"`
	MinLength  *int               `json:"minLength"`
	MaxItems   *int               `json:"maxItems"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	ListType   string             `json:"x-kubernetes-list-type"`
	ListKeys   []string           `json:"x-kubernetes-list-map-keys"`
}

// statusSchema returns the schema of the status, as the API server has it. The file is
// large, so it is read once.
var statusSchema = sync.OnceValues(func() (*schema, error) {
	text, err := os.ReadFile(definition)
	if err != nil {
		return nil, err
	}
	var d struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPI schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	return d.Spec.Versions[0].Schema.OpenAPI.Properties["status"], nil
})

// conforms checks that the API server would accept a status, and that at most one
// condition is True.
func conforms(t testing.TB, s *v1alpha1.MPIJobStatus) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	status, err := statusSchema()
	if err != nil {
		t.Fatal(err)
	}
	if err := status.check("status", value); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	var back v1alpha1.MPIJobStatus
	if err := json.Unmarshal(text, &back); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	if again, err := json.Marshal(&back); err != nil || string(again) != string(text) {
		t.Errorf("what is read back differs, so that it would be written again: %v\n%s\n%s", err, text, again)
	}
	one := ""
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionTrue {
			if one != "" {
				t.Errorf("%s and %s are both True", one, c.Type)
			}
			one = c.Type
		}
	}
}

func (s *schema) check(path string, value any) error {
	bad := func(format string, a ...any) error { return fmt.Errorf("%s: %s", path, fmt.Sprintf(format, a...)) }
	switch v := value.(type) {
	case string:
		n := utf8.RuneCountInString(v)
		switch {
		case s.Type != "string":
			return bad("a string, want %s", s.Type)
		case s.MaxLength != nil && n > *s.MaxLength, s.MinLength != nil && n < *s.MinLength:
			return bad("%d characters", n)
		case s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v):
			return bad("%q does not match %s", v, s.Pattern)
		}
		if s.Format == "date-time" {
			if _, err := time.Parse(time.RFC3339, v); err != nil {
				return bad("%v", err)
			}
		}
	case float64:
		if s.Type != "integer" || s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum || s.Format == "int32" && v != float64(int32(v)) {
			return bad("%v is no %s, or out of bounds", v, s.Type)
		}
	case []any:
		return s.checkList(path, v)
	case map[string]any:
		for _, name := range s.Required {
			if v[name] == nil {
				return bad("%s is missing", name)
			}
		}
		for name, field := range v {
			if s.Properties[name] == nil {
				return bad("unknown field %s", name)
			}
			if err := s.Properties[name].check(path+"."+name, field); err != nil {
				return err
			}
		}
	default:
		return bad("%v", value)
	}
	return nil
}

func (s *schema) checkList(path string, list []any) error {
	if s.Type != "array" || s.MaxItems != nil && len(list) > *s.MaxItems {
		return fmt.Errorf("%s: %d items, or no list", path, len(list))
	}
	seen := map[string]bool{}
	for i, item := range list {
		if err := s.Items.check(fmt.Sprintf("%s[%d]", path, i), item); err != nil {
			return err
		}
		key := fmt.Sprint(item)
		if s.ListType == "map" {
			key = fmt.Sprint(item.(map[string]any)[s.ListKeys[0]])
		}
		if seen[key] && s.ListType != "atomic" {
			return fmt.Errorf("%s[%d]: %s is there twice", path, i, key)
		}
		seen[key] = true
	}
	return nil
}
