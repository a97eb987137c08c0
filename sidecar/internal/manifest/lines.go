package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines finds the lines of a file on which the fields of a document begin, by their paths.
// The document is parsed again for that, only if it has a fault.
type lines struct {
	doc   []byte
	first int // line of the file on which the document begins
}

// of returns the lines of fields, or of the nearest fields that contain them, or 0 if
// unknown.
func (l lines) of(paths []string) []int {
	found := make([]int, len(paths))
	var root yaml.Node
	if err := yaml.Unmarshal(l.doc, &root); err != nil || len(root.Content) == 0 {
		return found
	}
	for i, path := range paths {
		if line := lineIn(root.Content[0], path); line > 0 {
			found[i] = l.first - 1 + line
		}
	}
	return found
}

// lineIn returns the line of a field of a document's node, or 0 if it is absent.
func lineIn(n *yaml.Node, path string) (line int) {
	for path != "" {
		var next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			name := -1
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i].Value // a key may contain dots: the longest match counts
				if rest, ok := strings.CutPrefix(path, key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') && len(key) > name {
					name, line, next = len(key), n.Content[i].Line, n.Content[i+1]
				}
			}
			if next != nil {
				path = strings.TrimPrefix(path[name:], ".")
			}
		case yaml.SequenceNode:
			number, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
			if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(n.Content) {
				line, next, path = n.Content[i].Line, n.Content[i], strings.TrimPrefix(rest, ".")
			}
		}
		if next == nil {
			return line
		}
		n = next
	}
	return line
}

// faultsMax bounds the reported faults of a document: a file may be a mistake as a whole.
const faultsMax = 20

// locate adds the lines of the faults.
func (l lines) locate(wrong []error) error {
	if len(wrong) == 0 {
		return nil
	}
	if more := len(wrong) - faultsMax; more > 0 {
		wrong = append(wrong[:faultsMax:faultsMax], errors.New("and more"))
	}
	var faults []*fault
	var paths []string
	for _, err := range wrong {
		var f *fault
		if errors.As(err, &f) {
			faults, paths = append(faults, f), append(paths, f.path)
		}
	}
	for i, line := range l.of(paths) {
		faults[i].line = line
	}
	return errors.Join(wrong...)
}

var lineText = regexp.MustCompile(`\bline ([0-9]+)`)

// inFile converts the line numbers in a parser's error, which count from the beginning of
// the document, to lines of the file.
func inFile(err error, first int) error {
	text := lineText.ReplaceAllStringFunc(err.Error(), func(at string) string {
		n, _ := strconv.Atoi(lineText.FindStringSubmatch(at)[1]) // the expression matches digits only
		return fmt.Sprintf("line %d", n+first-1)
	})
	text = strings.TrimPrefix(strings.Replace(text, "unmarshal errors:\n  ", "", 1), "yaml: ")
	text = strings.ReplaceAll(text, "\n ", ";")
	if !lineText.MatchString(text) {
		text = fmt.Sprintf("document that begins on line %d: %s", first, text)
	}
	return errors.New(text)
}
