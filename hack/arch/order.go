package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// anyOrder marks a loop over a map whose result does not depend on the order, in a comment on
// the line of the loop or on the line above.
const anyOrder = "any order"

// loopsHaveAnOrder checks that the rooms of the core do not range over maps: Go chooses another
// order in each run, so that a replayed job has other actions. Packages are read without types:
// a name is a map if its package declares a field, variable or parameter of that name with a
// map type.
func loopsHaveAnOrder(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		if p.Dir != coreRoom && !strings.HasPrefix(p.Dir, coreRoom+"/") {
			continue
		}
		maps := p.mapNames()
		for _, f := range p.Files {
			if f.Test {
				continue
			}
			wrong = append(wrong, f.loopsOver(maps)...)
		}
	}
	return wrong
}

// mapNames returns the names that the package declares with map types.
func (p *Package) mapNames() map[string]bool {
	maps := map[string]bool{}
	add := func(names []*ast.Ident) {
		for _, n := range names {
			maps[n.Name] = true
		}
	}
	for _, f := range p.Files {
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if isMap(n.Type) {
					add(n.Names)
				}
			case *ast.ValueSpec:
				if isMap(n.Type) || len(n.Values) > 0 && makesMap(n.Values[0]) {
					add(n.Names)
				}
			case *ast.AssignStmt:
				for i, value := range n.Rhs {
					if name, ok := n.Lhs[i].(*ast.Ident); ok && makesMap(value) {
						maps[name.Name] = true
					}
				}
			}
			return true
		})
	}
	return maps
}

func isMap(typ ast.Expr) bool {
	_, ok := typ.(*ast.MapType)
	return ok
}

// makesMap reports whether an expression is a map's literal or make.
func makesMap(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CompositeLit:
		return isMap(v.Type)
	case *ast.CallExpr:
		name, ok := v.Fun.(*ast.Ident)
		return ok && name.Name == "make" && len(v.Args) > 0 && isMap(v.Args[0])
	}
	return false
}

func (f *File) loopsOver(maps map[string]bool) []string {
	marked := map[int]bool{} // lines that a comment covers
	for _, group := range f.Syntax.Comments {
		if strings.Contains(group.Text(), anyOrder) {
			marked[f.line(group.Pos())], marked[f.line(group.End())+1] = true, true
		}
	}
	var wrong []string
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		loop, ok := n.(*ast.RangeStmt)
		if !ok || marked[f.line(loop.Pos())] {
			return true
		}
		over := loop.X
		if s, ok := over.(*ast.SelectorExpr); ok {
			over = s.Sel
		}
		if name, ok := over.(*ast.Ident); ok && maps[name.Name] {
			wrong = append(wrong, fmt.Sprintf("%s:%d: the core must not range over the map %s, whose order differs between runs; sort its keys, or say in a comment why it may be in %s", f.Path, f.line(loop.Pos()), name.Name, anyOrder))
		}
		return true
	})
	return wrong
}

func (f *File) line(at token.Pos) int { return f.set.Position(at).Line }
