package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "figures")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVersus: ratios are of rounds, and above 1 if the newer program is slower.
func TestVersus(t *testing.T) {
	before := file(t, `
{"peer":"p","test":"latency","bytes":8,"us":2}
{"peer":"p","test":"latency","bytes":8,"us":4}
{"peer":"p","test":"latency","bytes":8,"us":10}
{"peer":"p","test":"latency","bytes":64,"us":1}
{"peer":"p","test":"latency","bytes":64,"us":1}
{"peer":"p","test":"latency","bytes":64,"us":1}
{"peer":"p","test":"bandwidth","bytes":1048576,"mb_s":100}
{"peer":"p","test":"collectives","op":"barrier","bytes":0,"us":10}
{"peer":"p","test":"overlap","bytes":65536,"side":"isend","mode":"one","overlap":0}`)
	after := file(t, `
{"peer":"p","test":"latency","bytes":8,"us":4}
{"peer":"p","test":"latency","bytes":8,"us":4}
{"peer":"p","test":"latency","bytes":8,"us":40}
{"peer":"p","test":"latency","bytes":64,"us":8}
{"peer":"p","test":"latency","bytes":64,"us":8}
{"peer":"p","test":"latency","bytes":64,"us":8}
{"peer":"p","test":"bandwidth","bytes":1048576,"mb_s":50}
{"peer":"p","test":"collectives","op":"barrier","bytes":0,"us":5}
{"peer":"p","test":"self","bytes":8,"us":1}
{"peer":"p","test":"overlap","bytes":65536,"side":"isend","mode":"one","overlap":0}`)
	var b strings.Builder
	if err := versus(&b, before, after); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| p latency, 8 B | 4.00 (2.00-10.0) | 4.00 (4.00-40.0) | 2.00 (1.00-4.00) |",
		"| **p latency, all** (geometric mean) | | | **4.00** |",
		"| p bandwidth, 1 MiB | 100 (100-100) | 50.0 (50.0-50.0) | 2.00 (2.00-2.00) |",
		"| p barrier, 0 B | 10.0 (10.0-10.0) | 5.00 (5.00-5.00) | 0.50 (0.50-0.50) |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if rows := strings.Count(b.String(), "\n"); rows != 9 {
		t.Errorf("%d lines, want 9: what one side lacks, and parts, have no ratio\n%s", rows, b.String())
	}
}

// TestVersusRefuses what would compare other rounds with each other.
func TestVersusRefuses(t *testing.T) {
	one := `{"peer":"p","test":"latency","bytes":8,"us":2}` + "\n"
	for what, c := range map[string]struct{ before, after, want string }{
		"a round more":      {one, one + one, "1 rounds before and 2 after"},
		"nothing in common": {one, strings.Replace(one, "8", "16", 1), "no figure in common"},
		"a broken line":     {one, "{", "line 1"},
	} {
		err := versus(&strings.Builder{}, file(t, c.before), file(t, c.after))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}
