package arch

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Tree is a module as read from its source.
type Tree struct {
	Module   string
	Rooms    []Room
	Packages []*Package // by Dir

	// outside maps the import path of a package of another module to what it
	// imports.
	outside map[string][]string
}

// Package is a folder with Go files, whatever their build tags. Dir is relative
// to the module's root.
type Package struct {
	Dir   string
	Files []*File
}

// File is one Go file. Path is relative to the module's root.
type File struct {
	Path      string
	Test      bool // its name ends in _test.go
	Generated bool
	Lines     int
	Imports   []string
	Syntax    *ast.File

	set *token.FileSet // of Syntax
}

// Load reads the module at root: its rooms, its source and, through the go
// command, what the packages of other modules import.
func Load(root string) (*Tree, error) {
	module, err := modulePath(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	rooms, err := readRooms(filepath.Join(root, filepath.FromSlash(roomsFile)))
	if err != nil {
		return nil, err
	}
	packages, err := readPackages(root)
	if err != nil {
		return nil, err
	}
	outside, err := listOutside(root, module)
	if err != nil {
		return nil, err
	}
	return &Tree{Module: module, Rooms: rooms, Packages: packages, outside: outside}, nil
}

func modulePath(name string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", fmt.Errorf("%s has no module line", name)
}

// readPackages parses the Go files that belong to the module: not those of
// testdata, of hidden folders or of a module within.
func readPackages(root string) ([]*Package, error) {
	found := map[string]*Package{}
	var order []*Package
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && foreign(name) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		path, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file, err := readFile(name, filepath.ToSlash(path))
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if found[dir] == nil {
			found[dir] = &Package{Dir: dir}
			order = append(order, found[dir])
		}
		found[dir].Files = append(found[dir].Files, file)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the module's source: %w", err)
	}
	slices.SortFunc(order, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return order, nil
}

// foreign reports whether the go command would ignore this folder.
func foreign(dir string) bool {
	base := filepath.Base(dir)
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return !errors.Is(err, fs.ErrNotExist)
}

func readFile(name, path string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &File{
		Path:      path,
		Test:      strings.HasSuffix(path, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     bytes.Count(text, []byte("\n")),
		Syntax:    syntax,
		set:       set,
	}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: import %s: %w", path, spec.Path.Value, err)
		}
		f.Imports = append(f.Imports, imported)
	}
	return f, nil
}

// Room returns the room of a folder.
func (t *Tree) Room(dir string) (Room, bool) {
	i := slices.IndexFunc(t.Rooms, func(r Room) bool { return r.Dir == dir })
	if i < 0 {
		return Room{}, false
	}
	return t.Rooms[i], true
}

// dirOf returns the folder of an import path of this module.
func (t *Tree) dirOf(imported string) (string, bool) {
	if imported == t.Module {
		return ".", true
	}
	return strings.CutPrefix(imported, t.Module+"/")
}

// program reports whether the package is a binary.
func (p *Package) program() bool {
	return slices.ContainsFunc(p.Files, func(f *File) bool {
		return !f.Test && f.Syntax.Name.Name == "main"
	})
}

// imports returns what the package's files other than tests import, each once.
func (p *Package) imports() []string {
	var all []string
	for _, f := range p.Files {
		if !f.Test {
			all = append(all, f.Imports...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
