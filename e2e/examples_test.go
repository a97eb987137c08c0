package e2e

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ranksLine is a line that a rank has printed.
var ranksLine = regexp.MustCompile(`(?m)^\[\d+\] .*$`)

// TestExamples runs each example of the client library's documentation as a job of two
// ranks in two pods, which print the lines that the example's comment has.
func TestExamples(t *testing.T) {
	program := filepath.Join(t.TempDir(), "clientlib.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-c", "-o", program, "../clientlib")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the examples: %v\n%s", err, out)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../clientlib/example_test.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	list := doc.Examples([]*ast.File{file}...)
	if len(list) == 0 {
		t.Fatal("there are no examples")
	}
	for _, x := range list {
		t.Run("Example"+x.Name, func(t *testing.T) {
			var want []string
			for line := range strings.Lines(x.Doc) {
				if text, indented := strings.CutPrefix(line, "\t"); indented {
					want = append(want, strings.TrimSpace(text))
				}
			}
			if len(want) == 0 {
				t.Fatal("its comment does not say what it prints")
			}
			code, out := start(t, 2, 2, program, "example", x.Name).wait()
			got := ranksLine.FindAllString(out, -1)
			slices.Sort(got)
			slices.Sort(want)
			if code != 0 || !slices.Equal(got, want) {
				t.Errorf("exit code %d, the ranks print\n%s\nwant\n%s\nall:\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"), out)
			}
		})
	}
}
