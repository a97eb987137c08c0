package jobrun

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// fit returns the job's document for a machine with such memory, or an error if the job
// does not fit: its demand is what all pods and ranks take when they start, and the arenas
// that were requested. All pods run on this machine, so that each pool counts all of them.
func (s *Spec) fit(places []session.MemoryPool) (*bootstrap.Document, error) {
	d := *s.document()
	if a := d.Memory.ArenaBytes; a != 0 && (a < arenaLeast || a > arenaMost) {
		return &d, nil // the document's own check reports the error
	}
	sizes := s.sizes(&d)
	for _, p := range places {
		if err := s.fits(&d, sizes, p); err != nil {
			return nil, err
		}
		if sizes.First {
			sizes.Arena = min(sizes.Arena, sizes.Default(int64(p.Free), d.Ranks, len(d.Pods)))
		}
	}
	if sizes.First && sizes.Arena != memory.ArenaDefault {
		d.Memory.ArenaBytes = sizes.Arena
	}
	return &d, nil
}

// sizes returns the memory sizes of the job's ranks.
func (s *Spec) sizes(d *bootstrap.Document) memory.Sizes {
	z := memory.Sizes{
		Arena: cmp.Or(d.Memory.ArenaBytes, memory.ArenaDefault), Slab: cmp.Or(d.Memory.SlabBytes, memory.SlabDefault),
		Credit: cmp.Or(d.Tuning.CreditBytes, memory.CreditDefault), Encrypted: d.Tuning.Encrypt == bootstrap.EncryptTLS,
		MPI: s.usesMPI(),
	}
	asked := s.AsksForArena || s.ArenaBytes > 0
	for _, c := range s.commands() {
		env := slices.Concat(os.Environ(), s.Env, c.Env)
		if n, err := memory.Parse(valueOf(env, names.EnvArena), 1); err == nil && n > 0 { // otherwise the rank reports the error
			z.Arena, asked = n, true
		}
		if large := valueOf(env, names.EnvMPIArena); large != "" && large != "off" && s.usesMPI() {
			asked = true
		}
	}
	z.First = !asked
	return z
}

// usesMPI reports whether programs of the job use an MPI.
func (s *Spec) usesMPI() bool { return s.MPI != "" && s.MPI != "none" }

// valueOf returns the last value of a variable, or the empty string if it is not set.
func valueOf(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// demand is the memory that some pods need of a pool.
type demand struct {
	ranks, pods int
	free        int64
	note        string // remark on the free memory
}

// fits returns an error if a job is too large for a pool.
func (s *Spec) fits(d *bootstrap.Document, z memory.Sizes, p session.MemoryPool) error {
	demands := []demand{{d.Ranks, len(d.Pods), int64(p.Free), ""}}
	for i := range d.Pods {
		if p.Limit == 0 {
			break
		}
		// Each sidecar reserves the memory that messages may take, as it does in a
		// container of its own.
		here := d.Pods[i].Ranks
		own := z.Own(here, d.Ranks, len(d.Pods))
		free := max(int64(p.Limit)-own+z.AtStart(0, 1), 0)
		demands = append(demands, demand{here, 1, free, fmt.Sprintf(", where a sidecar keeps %s", memory.Text(uint64(own)))})
	}
	fits := z.Arena
	var short *demand
	for i := range demands {
		x := &demands[i]
		fits = min(fits, z.ArenaFor(x.free, x.ranks, x.pods))
		if short == nil && z.AtStart(x.ranks, x.pods) > x.free {
			short = x
		}
	}
	if short == nil {
		return nil
	}
	remedy := "start fewer ranks or pods"
	if !z.First && fits >= arenaLeast {
		remedy = fmt.Sprintf("use an arena of %s or less (--arena, memory.arena of an MPIJob, or %s), or start fewer ranks", arenaText(fits), names.EnvArena)
	}
	return fmt.Errorf("not enough memory: %s in %s take %s when they start, each rank %s of its arena and a slab of %s; %s available %s%s: %s",
		count(short.ranks, "rank"), count(short.pods, "pod"), memory.Text(uint64(z.AtStart(short.ranks, short.pods))),
		memory.Text(uint64(z.Counted())), memory.Text(uint64(z.Slab)), memory.Text(uint64(short.free)), p.Where, short.note, remedy)
}

// Bounds of the arena that may be requested.
const (
	arenaLeast = 64 << 10
	arenaMost  = 1 << 44
)

// arenaText formats a size as --arena accepts it, rounded down.
func arenaText(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
