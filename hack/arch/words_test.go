package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wordsMax bounds the words of documents that grew without a bound, by pattern relative to the
// module's root.
var wordsMax = map[string]int{
	"ARCHITECTURE.md":     1600,
	"CHANGELOG.md":        1500,
	"docs/BENCHMARKS.md":  4000,
	"docs/glossary.md":    600,
	"docs/decisions/*.md": 400,
}

// paragraphMax bounds the words of a paragraph of a contract, which states one rule.
const paragraphMax = 120

// TestLengths checks the lengths of documents, and of the paragraphs of the contracts.
func TestLengths(t *testing.T) {
	for pattern, most := range wordsMax {
		for _, name := range matches(t, pattern) {
			if n := len(bytes.Fields(read(t, name))); n > most {
				t.Errorf("%s has %d words, want at most %d", name, n, most)
			}
		}
	}
	for _, pattern := range []string{"api/shm/LAYOUT.md", "api/*/PROTOCOL.md"} {
		for _, name := range matches(t, pattern) {
			for _, p := range paragraphs(string(read(t, name))) {
				if n := len(strings.Fields(p)); n > paragraphMax {
					t.Errorf("%s: a paragraph of %d words, want at most %d: %.60s", name, n, paragraphMax, p)
				}
			}
		}
	}
}

// TestParagraphs checks that a list item is a paragraph, and that tables and code are none.
func TestParagraphs(t *testing.T) {
	text := "# Title\none\ntwo\n\n- three\n1. four\n\n| a | b |\n```\ncode\n```\n"
	if got := strings.Join(paragraphs(text), "|"); got != "one\ntwo|- three|1. four" {
		t.Errorf("%q", got)
	}
}

func matches(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s matches no file: %v", pattern, err)
	}
	return found
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// paragraphs returns the paragraphs and list items of a Markdown text, without headings, tables
// and code.
func paragraphs(text string) []string {
	var all, lines []string
	end := func() {
		if len(lines) > 0 {
			all, lines = append(all, strings.Join(lines, "\n")), nil
		}
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch s := strings.TrimSpace(line); {
		case strings.HasPrefix(s, "```"):
			end()
			code = !code
		case code:
		case s == "", strings.HasPrefix(s, "#"), strings.HasPrefix(s, "|"):
			end()
		case strings.HasPrefix(s, "- "), strings.HasPrefix(strings.TrimLeft(s, "0123456789"), ". "):
			end()
			lines = append(lines, line)
		default:
			lines = append(lines, line)
		}
	}
	end()
	return all
}
