package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// impure are the packages that bring a lock, I/O, a hidden input or unsafe into
// a room; with a slash at the end, everything below too.
var impure = []string{
	"C", "unsafe", "syscall", "golang.org/x/sys/",
	"sync", "sync/", "golang.org/x/sync/",
	"os", "os/", "net", "net/", "log", "log/",
	"crypto/rand",
}

// harmless are packages below impure ones that a room may import: cpu tells which instructions
// the processor has, and the results with and without them are equal.
var harmless = []string{"golang.org/x/sys/cpu"}

// clock are the functions of package time that read or wait for a clock. Its
// types and constants are free: time is an argument of a pure room.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// pureRoomsArePure checks all files except tests of the pure packages.
func pureRoomsArePure(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		if room, ok := t.Room(p.Dir); !ok || room.Kind != Pure {
			continue
		}
		for _, f := range p.Files {
			if f.Test {
				continue
			}
			wrong = append(wrong, f.impureImports()...)
			wrong = append(wrong, f.impureStatements()...)
		}
	}
	return wrong
}

func (f *File) impureImports() []string {
	var wrong []string
	for _, imported := range f.Imports {
		bad := slices.ContainsFunc(impure, func(name string) bool {
			return imported == name || strings.HasSuffix(name, "/") && strings.HasPrefix(imported, name)
		})
		if bad && !slices.Contains(harmless, imported) {
			wrong = append(wrong, fmt.Sprintf("%s: a pure room must not import %s", f.Path, imported))
		}
	}
	return wrong
}

func (f *File) impureStatements() []string {
	var wrong []string
	timeName := f.nameOf("time")
	if timeName == "." {
		wrong = append(wrong, fmt.Sprintf(`%s: a pure room must not import "time" with a dot, which hides the clock`, f.Path))
	}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			wrong = append(wrong, fmt.Sprintf("%s: a pure room must not start a goroutine", f.Path))
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && timeName != "" && x.Name == timeName && slices.Contains(clock, n.Sel.Name) {
				wrong = append(wrong, fmt.Sprintf("%s: a pure room must not use time.%s; take the time as an argument", f.Path, n.Sel.Name))
			}
		}
		return true
	})
	return wrong
}

// nameOf returns the name under which the file knows a package of the standard
// library whose name is its path, or nothing.
func (f *File) nameOf(imported string) string {
	for i, spec := range f.Syntax.Imports {
		if f.Imports[i] != imported {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return imported
	}
	return ""
}
