// Command crd changes generated resource definitions for their readers. It removes the descriptions
// of the embedded pod template, which are Kubernetes' own and two thirds of the file: the rest fits
// into the annotation in which `kubectl apply` keeps the applied object (256 KiB). And it writes the
// default and the bounds of a field into its description, in brackets at the end, because `kubectl
// explain` does not show them otherwise.
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := shorten(path); err != nil {
			fmt.Fprintln(os.Stderr, "crd:", err)
			os.Exit(1)
		}
	}
}

func shorten(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	walk(definition, false)
	if text, err = yaml.Marshal(definition); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, append([]byte("---\n"), text...), 0o644)
}

// walk visits all nodes. within means that node is below the schema of a pod template, whose own
// description is kept.
func walk(node any, within bool) {
	switch node := node.(type) {
	case []any:
		for _, v := range node {
			walk(v, within)
		}
	case map[string]any:
		if text, described := node["description"].(string); described && within {
			delete(node, "description")
		} else if bounds := bounds(node); described && bounds != "" {
			node["description"] = text + " [" + bounds + "]"
		}
		for key, v := range node {
			if list, ok := v.(map[string]any); ok && within && key == "searches" {
				limit(list)
			}
			if m, ok := v.(map[string]any); ok && key == "template" && !within {
				for part, inner := range m {
					walk(inner, part == "properties")
				}
				continue
			}
			walk(v, within)
		}
	}
}

// Bounds of the search list of a pod's dnsConfig, by Kubernetes' own validation
// (MaxDNSSearchPaths), and of a name in DNS.
const (
	searchesMax = 32
	nameMax     = 253
)

// limit bounds the schema of a list of names.
func limit(list map[string]any) {
	list["maxItems"] = searchesMax
	if items, ok := list["items"].(map[string]any); ok {
		items["maxLength"] = nameMax
	}
}

// bounds returns a field's default and its bounds as text.
func bounds(schema map[string]any) string {
	var parts []string
	switch d := schema["default"].(type) {
	case nil, map[string]any:
	default:
		parts = append(parts, fmt.Sprint("default ", d))
	}
	if list, ok := schema["enum"].([]any); ok {
		var words []string
		for _, w := range list {
			words = append(words, fmt.Sprint(w))
		}
		parts = append(parts, strings.Join(words, ", "))
	}
	for _, b := range [][3]string{{"minimum", "maximum", ""}, {"minLength", "maxLength", " characters"}, {"minItems", "maxItems", " entries"}} {
		least, most := schema[b[0]], schema[b[1]]
		switch {
		case least != nil && most != nil:
			parts = append(parts, fmt.Sprintf("%v to %v%s", number(least), number(most), b[2]))
		case most != nil:
			parts = append(parts, fmt.Sprintf("at most %v%s", number(most), b[2]))
		case least != nil:
			parts = append(parts, fmt.Sprintf("at least %v%s", number(least), b[2]))
		}
	}
	return strings.Join(parts, "; ")
}

// number returns a bound without an exponent.
func number(v any) any {
	if f, ok := v.(float64); ok {
		return int64(f)
	}
	return v
}
