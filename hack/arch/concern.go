package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// Most methods and fields of a type in the engine, the core and the links. A type with more has
// more than one concern.
const (
	methodsMax = 120
	fieldsMax  = 30
)

// typesHaveOneConcern bounds the methods and the fields of types where most of the sidecar's state
// is. Types without methods are exempt: configurations and results are long lists of values.
func typesHaveOneConcern(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		if !boundsTypes(p.Dir) {
			continue
		}
		methods, fields := sizes(p)
		names := make([]string, 0, len(methods))
		for name := range methods {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if n := methods[name]; n > methodsMax {
				wrong = append(wrong, fmt.Sprintf("%s: type %s has %d methods, more than %d; split it by concern", p.Dir, name, n, methodsMax))
			}
			if n := fields[name]; n > fieldsMax {
				wrong = append(wrong, fmt.Sprintf("%s: type %s has %d fields, more than %d; split it by concern", p.Dir, name, n, fieldsMax))
			}
		}
	}
	return wrong
}

func boundsTypes(dir string) bool {
	for _, room := range []string{coreRoom, "sidecar/internal/engine", "sidecar/internal/link"} {
		if dir == room || strings.HasPrefix(dir, room+"/") {
			return true
		}
	}
	return false
}

// sizes counts the methods and fields of a package's types by name.
func sizes(p *Package) (methods, fields map[string]int) {
	methods, fields = map[string]int{}, map[string]int{}
	for _, f := range p.Files {
		if f.Test {
			continue
		}
		for _, d := range f.Syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[receiver(d.Recv.List[0].Type)]++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if x, ok := s.(*ast.TypeSpec); ok {
						if s, ok := x.Type.(*ast.StructType); ok {
							fields[x.Name.Name] = s.Fields.NumFields()
						}
					}
				}
			}
		}
	}
	return methods, fields
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	for {
		switch e := x.(type) {
		case *ast.StarExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.IndexListExpr:
			x = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}
