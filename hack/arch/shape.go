package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// linesMax is where one idea stops being readable in one file.
const linesMax = 700

// nobodysNames say nothing about what is inside.
var nobodysNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "types"}

// unsafeFilesAreNamed lets a reader see from `ls` where memory is not checked
// by the compiler.
func unsafeFilesAreNamed(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if !f.Test && slices.Contains(f.Imports, "unsafe") && !strings.HasSuffix(f.Path, "_unsafe.go") {
				wrong = append(wrong, f.Path+": imports unsafe; its name must end in _unsafe.go")
			}
		}
	}
	return wrong
}

// filesAreReadable bounds the length of what a person writes.
func filesAreReadable(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if !f.Generated && f.Lines > linesMax {
				wrong = append(wrong, fmt.Sprintf("%s: has %d lines, more than %d; split it by concept", f.Path, f.Lines, linesMax))
			}
		}
	}
	return wrong
}

// namesAreConcepts refuses packages and files that are named for nothing.
func namesAreConcepts(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		name := strings.TrimSuffix(p.Files[0].Syntax.Name.Name, "_test")
		if slices.Contains(nobodysNames, name) {
			wrong = append(wrong, fmt.Sprintf("%s: package %s is named for nothing; name the concept", p.Dir, name))
		}
		for _, f := range p.Files {
			base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
			if slices.Contains(nobodysNames, strings.TrimSuffix(base, "_unsafe")) {
				wrong = append(wrong, fmt.Sprintf("%s: the file is named for nothing; name the concept", f.Path))
			}
		}
	}
	return wrong
}
