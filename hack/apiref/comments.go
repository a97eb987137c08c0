package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// source is a Go file with its comments.
type source struct{ tree *ast.File }

func parse(file string) (source, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	return source{tree}, err
}

// constant is a condition or a reason: its value and the text of its comment.
type constant struct{ value, meaning, remedy string }

// constants returns the string constants whose name has the prefix, or whose type is kind.
func (s source) constants(prefix, kind string) (found []constant, err error) {
	for _, d := range s.tree.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, spec := range decl.Specs {
			v := spec.(*ast.ValueSpec) // specs of a const declaration are value specs
			of, _ := v.Type.(*ast.Ident)
			if kind == "" && !strings.HasPrefix(v.Names[0].Name, prefix) || kind != "" && (of == nil || of.Name != kind) {
				continue
			}
			c, err := explained(v)
			if err != nil {
				return nil, err
			}
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no constants %s%s", prefix, kind)
	}
	return found, nil
}

func explained(v *ast.ValueSpec) (c constant, err error) {
	name := v.Names[0].Name
	if c.value, err = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value); err != nil { // the constants are strings
		return c, fmt.Errorf("%s: %w", name, err)
	}
	text, found := strings.CutPrefix(v.Doc.Text(), name+": ")
	if !found {
		return c, fmt.Errorf("%s: its comment does not begin with %q", name, name+": ")
	}
	meaning, remedy, _ := strings.Cut(text, "\nRemedy: ")
	c.meaning, c.remedy = cell(meaning), cell(remedy)
	return c, nil
}

func cell(text string) string { return strings.Join(strings.Fields(markdown(text)), " ") }

func table(list []constant, remedies bool) string {
	var b strings.Builder
	b.WriteString("| | meaning |\n|---|---|\n")
	if remedies {
		b.Reset()
		b.WriteString("| | meaning | what to do |\n|---|---|---|\n")
	}
	for _, c := range list {
		fmt.Fprintf(&b, "| `%s` | %s |", c.value, c.meaning)
		if remedies {
			b.WriteString(" " + c.remedy + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// sections returns the parts of a package comment that have a heading.
func (s source) sections() string {
	text := "\n" + markdown(s.tree.Doc.Text())
	_, text, _ = strings.Cut(text, "\n# ")
	return "\n## " + strings.ReplaceAll(text, "\n# ", "\n## ")
}

var (
	claim    = regexp.MustCompile(`\n\s*\+(claim of \w+: \S+ Test\w+)`)
	document = regexp.MustCompile(`\bdocs/([a-z./-]+\.(?:md|yaml))`)
)

// markdown returns a comment as Markdown: claims become hidden comments, documents become links.
func markdown(text string) string {
	text = claim.ReplaceAllString(text, "<!-- $1 -->")
	return document.ReplaceAllString(text, "[$1]($1)")
}
