// Command crd makes a generated resource definition smaller: it takes out the
// descriptions of the embedded pod template, which are Kubernetes' own and two
// thirds of the file. What is left fits into the annotation in which `kubectl
// apply` keeps what it has applied (256 KiB).
package main

import (
	"fmt"
	"os"

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

// walk visits everything; within is below the schema of a pod template, whose
// own description stays.
func walk(node any, within bool) {
	switch node := node.(type) {
	case []any:
		for _, v := range node {
			walk(v, within)
		}
	case map[string]any:
		if _, described := node["description"].(string); described && within {
			delete(node, "description")
		}
		for key, v := range node {
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
