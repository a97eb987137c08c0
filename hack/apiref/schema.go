package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// schema is the part of a definition's schema that the document has.
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
	Enum        []string
	Validations []struct{ Rule, Message string } `json:"x-kubernetes-validations"`
}

func definition(root, plural string) (*schema, error) {
	text, err := os.ReadFile(filepath.Join(root, "charts/outrigger/generated/crds/outrigger.dev_"+plural+".yaml"))
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] == nil {
		return nil, errors.New(plural + " have no version, several, or no spec")
	}
	return &crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nil
}

// each visits the fields below s, in order of their names. What is below a pod template
// or a list of Kubernetes' own conditions is documented there.
func (s *schema) each(path string, visit func(path string, s *schema, required bool)) {
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p, below := s.Properties[name], strings.TrimPrefix(path+"."+name, ".")
		visit(below, p, slices.Contains(s.Required, name))
		if below == "template" || below == "conditions" {
			continue
		}
		p.each(below, visit)
		if p.Items != nil {
			p.Items.each(below+"[]", visit)
		}
	}
}

// fields returns the table of a definition's spec.
func (s *schema) fields() string {
	var rows []string
	s.Properties["spec"].each("", func(path string, s *schema, required bool) {
		if len(s.Properties) > 0 && path != "template" || s.Items != nil && len(s.Items.Properties) > 0 {
			return // its fields are in the table
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", path, s.preset(required), s.bounds(path), plain(s.Description)))
	})
	slices.Sort(rows)
	return "| field | default | what it may be | meaning |\n|---|---|---|---|\n" + strings.Join(rows, "")
}

// rules returns the rules of a definition as a whole.
func (s *schema) rules() string {
	var b strings.Builder
	for _, of := range []*schema{s, s.Properties["spec"]} {
		for _, v := range of.Validations {
			b.WriteString("- " + v.Message + "\n")
		}
	}
	return b.String()
}

func (s *schema) statusFields() string {
	var b strings.Builder
	b.WriteString("| field | meaning |\n|---|---|\n")
	s.Properties["status"].each("", func(path string, s *schema, _ bool) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", path, plain(s.Description))
	})
	return b.String()
}

// bracketed matches the text that hack/crd adds to a description: the table has columns for it.
var bracketed = regexp.MustCompile(` \[[^\]]*\]$`)

func plain(text string) string {
	text = strings.Join(strings.Fields(bracketed.ReplaceAllString(text, "")), " ")
	return strings.ReplaceAll(text, "|", "\\|")
}

var saidDefault = regexp.MustCompile(`Default (\w+)\.`)

func (s *schema) preset(required bool) string {
	switch m := saidDefault.FindStringSubmatch(s.Description); {
	case required:
		return "required"
	case s.Default != nil:
		raw, _ := json.Marshal(s.Default) // the default was parsed from JSON
		return "`" + strings.Trim(string(raw), `"`) + "`"
	case m != nil:
		return "`" + m[1] + "`"
	}
	return ""
}

// bounds returns the values that a field may have, without the field's name, which is in the row.
func (s *schema) bounds(path string) string {
	own := path[strings.LastIndexByte(path, '.')+1:] + " is "
	switch {
	case s.Enum != nil:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Minimum != nil:
		return span(int64(*s.Minimum), maximum(s.Maximum))
	}
	var list []string
	for _, v := range s.Validations {
		if !strings.Contains(v.Rule, "oldSelf") {
			list = append(list, strings.TrimPrefix(v.Message, own))
		}
	}
	if s.MaxLength != nil {
		least := 0
		if s.MinLength != nil {
			least = *s.MinLength
		}
		list = append(list, span(int64(least), int64(*s.MaxLength))+" characters")
	}
	return strings.Join(list, "; ")
}

func maximum(p *float64) int64 {
	if p == nil {
		return 0
	}
	return int64(*p)
}

// span returns a range as text. A most of 0 means that there is no upper bound.
func span(least, most int64) string {
	if most == 0 {
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}
