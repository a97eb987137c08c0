package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines are the lines of a file on which the fields of a document begin, by their paths.
type lines map[string]int

// linesOf reads them from a document that begins on a line. Of one that is no YAML there
// are none.
func linesOf(doc []byte, first int) lines {
	l := lines{}
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil || len(root.Content) == 0 {
		return l
	}
	l.note(root.Content[0], "", first-1)
	return l
}

func (l lines) note(n *yaml.Node, path string, before int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			l[name] = before + n.Content[i].Line
			l.note(n.Content[i+1], name, before)
		}
	case yaml.SequenceNode:
		for i, e := range n.Content {
			name := fmt.Sprintf("%s[%d]", path, i)
			l[name] = before + e.Line
			l.note(e, name, before)
		}
	}
}

// of is the line of a field, or of the nearest one that it is in.
func (l lines) of(path string) int {
	for path != "" {
		if n := l[path]; n > 0 {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// locate adds the lines of what is wrong.
func (l lines) locate(wrong []error) error {
	for _, err := range wrong {
		var f *fault
		if errors.As(err, &f) {
			f.line = l.of(f.path)
		}
	}
	return errors.Join(wrong...)
}

// lineOf is the line of a file on which the bytes from an offset on begin.
func lineOf(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }

var lineText = regexp.MustCompile(`\bline ([0-9]+)`)

// inFile makes an error of a parser, which counts the lines of a document that begins on a
// line of the file, one of the file.
func inFile(err error, first int) error {
	text := lineText.ReplaceAllStringFunc(err.Error(), func(at string) string {
		n, _ := strconv.Atoi(lineText.FindStringSubmatch(at)[1]) // digits by the expression
		return fmt.Sprintf("line %d", n+first-1)
	})
	text = strings.TrimPrefix(strings.Replace(text, "unmarshal errors:\n  ", "", 1), "yaml: ")
	text = strings.ReplaceAll(text, "\n ", ";")
	if !lineText.MatchString(text) {
		text = fmt.Sprintf("document that begins on line %d: %s", first, text)
	}
	return errors.New(text)
}
