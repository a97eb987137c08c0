package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// linesMax is the most lines of a file: a longer one has more than one idea.
const linesMax = 700

// vagueNames do not describe the content of a package or file.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "types"}

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

// filesAreReadable bounds the lines of files that are not generated.
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

// namesAreConcepts reports packages and files with vague names.
func namesAreConcepts(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		name := strings.TrimSuffix(p.Files[0].Syntax.Name.Name, "_test")
		if slices.Contains(vagueNames, name) {
			wrong = append(wrong, fmt.Sprintf("%s: package %s is named for nothing; name the concept", p.Dir, name))
		}
		for _, f := range p.Files {
			base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
			if slices.Contains(vagueNames, strings.TrimSuffix(base, "_unsafe")) {
				wrong = append(wrong, fmt.Sprintf("%s: the file is named for nothing; name the concept", f.Path))
			}
		}
	}
	return wrong
}
