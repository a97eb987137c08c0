package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// listOutside asks the go command what the packages of other modules import.
// It tolerates packages that do not compile (-e): their imports are known from
// the source, and whether they compile is not this package's question.
func listOutside(root, module string) (map[string][]string, error) {
	list := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports,Standard", "./...")
	list.Dir = root
	var said bytes.Buffer
	list.Stderr = &said
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", root, err, said.String())
	}
	outside := map[string][]string{}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
		}
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return outside, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list said: %w", err)
		}
		if !p.Standard && p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			outside[p.ImportPath] = p.Imports
		}
	}
}

// reach finds the nearest package that the package in dir depends on, itself
// included, and that stop accepts. It returns the chain of import paths to that package, or nil. Tests do not count: they are not linked into a binary.
func (t *Tree) reach(dir string, stop func(imported string) bool) []string {
	start := t.Module + "/" + dir
	cameFrom := map[string]string{start: ""}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if stop(at) {
			return way(cameFrom, at)
		}
		for _, next := range t.importsOf(at) {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func (t *Tree) importsOf(imported string) []string {
	dir, ours := t.dirOf(imported)
	if !ours {
		return t.outside[imported]
	}
	for _, p := range t.Packages {
		if p.Dir == dir {
			return p.imports()
		}
	}
	return nil
}

func way(cameFrom map[string]string, end string) []string {
	var steps []string
	for at := end; at != ""; at = cameFrom[at] {
		steps = append(steps, at)
	}
	slices.Reverse(steps)
	return steps
}
