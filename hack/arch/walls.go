package arch

import (
	"fmt"
	"slices"
	"strings"
)

// everyPackageIsARoom compares the list with the tree, in both directions.
func everyPackageIsARoom(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		if _, ok := t.Room(p.Dir); !ok {
			wrong = append(wrong, fmt.Sprintf("%s: is no room; add a line to %s", p.Dir, roomsFile))
		}
	}
	for _, r := range t.Rooms {
		if !slices.ContainsFunc(t.Packages, func(p *Package) bool { return p.Dir == r.Dir }) {
			wrong = append(wrong, fmt.Sprintf("%s: is listed but holds no Go package; remove its line from %s", r.Dir, roomsFile))
		}
	}
	return wrong
}

// importsGoDown checks that each package imports only the kinds that its kind may import. Packages
// that are not in rooms.txt are reported by everyPackageIsARoom.
func importsGoDown(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		from, ok := t.Room(p.Dir)
		if !ok {
			continue
		}
		for _, imported := range p.imports() {
			dir, ours := t.dirOf(imported)
			to, known := t.Room(dir)
			if ours && known && !slices.Contains(mayImport[from.Kind], to.Kind) {
				wrong = append(wrong, fmt.Sprintf("%s: %s must not import %s, which is %s",
					p.Dir, from.Kind, to.Dir, to.Kind))
			}
		}
	}
	return wrong
}

// coreRoom is the core; the folders below it are its rooms.
const coreRoom = "sidecar/internal/core"

// coreKeepsItsRooms checks that the rooms of the core import each other only as the arrows of
// rooms.txt allow, and that no package outside the core imports them.
func coreKeepsItsRooms(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		from, _ := t.Room(p.Dir)
		inside := p.Dir == coreRoom || strings.HasPrefix(p.Dir, coreRoom+"/")
		for _, imported := range p.imports() {
			dir, ours := t.dirOf(imported)
			name, inner := strings.CutPrefix(dir, coreRoom+"/")
			switch {
			case !ours || !inner && dir != coreRoom:
			case !inside && inner:
				wrong = append(wrong, fmt.Sprintf("%s: must not import %s, which is a room of the core; ask %s", p.Dir, dir, coreRoom))
			case inside && (!inner || !slices.Contains(from.Inner, name)):
				wrong = append(wrong, fmt.Sprintf("%s: must not import %s: its line in %s has no arrow to it", p.Dir, dir, roomsFile))
			}
		}
	}
	return wrong
}

// verbsRoom is the only package that may use cgo.
const verbsRoom = "sidecar/internal/link/verbs"

// cgoStaysInVerbs keeps `import "C"` in one room, so that everything else
// builds and cross-compiles without a C compiler.
func cgoStaysInVerbs(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if p.Dir != verbsRoom && slices.Contains(f.Imports, "C") {
				wrong = append(wrong, fmt.Sprintf(`%s: import "C" belongs only in %s`, f.Path, verbsRoom))
			}
		}
	}
	return wrong
}

// kubernetesStaysOut keeps Kubernetes' packages away from programs that run next to or
// inside an application: the daemon, the launcher and the client library.
func kubernetesStaysOut(t *Tree) []string {
	var wrong []string
	for _, r := range t.Rooms {
		lean := r.Kind == Client || r.Kind == Example ||
			r.Dir == "sidecar/cmd/outrigger-sidecar" || r.Dir == "sidecar/cmd/outrigger-launch"
		if !lean {
			continue
		}
		if steps := t.reach(r.Dir, isKubernetes); steps != nil {
			wrong = append(wrong, fmt.Sprintf("%s: must not reach Kubernetes: %s", r.Dir, strings.Join(steps[1:], " -> ")))
		}
	}
	return wrong
}

func isKubernetes(imported string) bool {
	return strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "sigs.k8s.io/")
}

// testRoomsStayOutOfBinaries keeps the simulator and the link suite out of programs that are
// shipped. Tools are not shipped.
func testRoomsStayOutOfBinaries(t *Tree) []string {
	isTest := func(imported string) bool {
		dir, ours := t.dirOf(imported)
		room, ok := t.Room(dir)
		return ours && ok && room.Kind == Test
	}
	var wrong []string
	for _, p := range t.Packages {
		if room, ok := t.Room(p.Dir); !p.program() || ok && room.Kind == Tool {
			continue
		}
		if steps := t.reach(p.Dir, isTest); steps != nil {
			wrong = append(wrong, fmt.Sprintf("%s: a binary must not reach a test room: %s", p.Dir, strings.Join(steps[1:], " -> ")))
		}
	}
	return wrong
}
