package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A function of a C file that others may call, at its definition; and what is no code.
var (
	cFunction = regexp.MustCompile(`(?m)^(?:[a-z_0-9]+[ \*]+)+(\w+)\([^;{]*\)\s*\{`)
	cComment  = regexp.MustCompile(`(?s)/\*.*?\*/|"(?:\\.|[^"\\])*"`)
	cWord     = regexp.MustCompile(`\b\w+\b`)
)

// cCalls are the files whose functions each C file of a folder names.
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

// cycle is files that call each other, in order; nil: there are none.
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

// TestCClientHasNoCycle: files of the C client do not call each other in a circle.
func TestCClientHasNoCycle(t *testing.T) {
	calls := cCalls(t, "../../clientlib/c/src")
	if !slices.Contains(calls["progress.c"], "submit.c") || !slices.Contains(calls["wait.c"], "message.c") {
		t.Errorf("calls are not found: %v", calls)
	}
	if c := cycle(calls); c != nil {
		t.Errorf("these files call each other: %s", strings.Join(c, " -> "))
	}
	calls["clock.c"] = append(calls["clock.c"], "wait.c")
	if cycle(calls) == nil {
		t.Error("a cycle is not found")
	}
}
