package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The definition of a C function with external linkage; and comments and strings, which are no code.
var (
	cFunction = regexp.MustCompile(`(?m)^(?:[a-z_0-9]+[ \*]+)+(\w+)\([^;{]*\)\s*\{`)
	cComment  = regexp.MustCompile(`(?s)/\*.*?\*/|"(?:\\.|[^"\\])*"`)
	cWord     = regexp.MustCompile(`\b\w+\b`)
)

// cCalls returns, for each C file of a folder, the files whose functions it names.
func cCalls(t *testing.T, folder string) map[string][]string {
	files, err := filepath.Glob(filepath.Join(folder, "*.c"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(files), err)
	}
	text, home := map[string]string{}, map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		text[name] = cComment.ReplaceAllString(string(b), " ")
		for _, m := range cFunction.FindAllStringSubmatch(text[name], -1) {
			if !strings.HasPrefix(strings.TrimSpace(m[0]), "static") {
				home[m[1]] = name
			}
		}
	}
	calls := map[string][]string{}
	for name, s := range text {
		for _, w := range cWord.FindAllString(s, -1) {
			if to := home[w]; to != "" && to != name && !slices.Contains(calls[name], to) {
				calls[name] = append(calls[name], to)
			}
		}
	}
	return calls
}

// cycle returns files that call each other in a circle, in order, or nil.
func cycle(calls map[string][]string) []string {
	done := map[string]bool{}
	var path []string
	var visit func(string) []string
	visit = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if done[name] {
			return nil
		}
		done[name] = true
		path = append(path, name)
		defer func() { path = path[:len(path)-1] }()
		for _, to := range calls[name] {
			if c := visit(to); c != nil {
				return c
			}
		}
		return nil
	}
	for name := range calls {
		if c := visit(name); c != nil {
			return c
		}
	}
	return nil
}

// TestCClientHasNoCycle: files of the C client do not call each other in a circle, nor those of the
// libfabric provider.
func TestCClientHasNoCycle(t *testing.T) {
	for folder, known := range map[string][2]string{
		"../../clientlib/c/src": {"wait.c", "message.c"},
		"../../clientlib/c/fi":  {"transfer.c", "linger.c"},
	} {
		calls := cCalls(t, folder)
		if !slices.Contains(calls[known[0]], known[1]) {
			t.Errorf("%s: calls of %s are not found: %v", folder, known[1], calls)
		}
		if c := cycle(calls); c != nil {
			t.Errorf("%s: these files call each other: %s", folder, strings.Join(c, " -> "))
		}
		calls[known[1]] = append(calls[known[1]], known[0])
		if cycle(calls) == nil {
			t.Errorf("%s: a cycle is not found", folder)
		}
	}
}
