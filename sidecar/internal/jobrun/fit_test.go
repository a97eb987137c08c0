package jobrun

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

const mib = 1 << 20

// TestFit checks that a job that does not fit is refused with its demand, with the
// available memory, and with an arena that fits. A default arena is a maximum, of which the
// first piece counts.
func TestFit(t *testing.T) {
	machine := func(free uint64) session.MemoryPool { return session.MemoryPool{Free: free, Where: "on the machine"} }
	group := func(free, limit uint64) session.MemoryPool {
		return session.MemoryPool{Free: free, Limit: limit, Where: "within the container's limit"}
	}
	for what, c := range map[string]struct {
		s     Spec
		env   []string
		place session.MemoryPool
		want  []string // parts of the error; none: the job fits
		arena int64    // arena of the document
	}{
		"a default job":                {Spec{Ranks: 4, Pods: 2}, nil, machine(20 << 30), nil, 0},
		"two pods in a control group":  {Spec{Ranks: 4, Pods: 2}, nil, group(690*mib, 700*mib), nil, 158 * mib},
		"100 ranks":                    {Spec{Ranks: 100, Pods: 1}, nil, machine(20 << 30), nil, 198 * mib},
		"1000 ranks":                   {Spec{Ranks: 1000, Pods: 1}, nil, machine(20 << 30), nil, 15 * mib},
		"4000 ranks":                   {Spec{Ranks: 4000, Pods: 1}, nil, machine(20 << 30), []string{"4000 ranks in 1 pod take 35.4 GiB when they start", "each rank 4 MiB of its arena and a slab of 4 MiB", "20 GiB available on the machine: start fewer ranks"}, 0},
		"an arena":                     {Spec{Ranks: 4, Pods: 2, ArenaBytes: 256 * mib}, nil, machine(20 << 30), nil, 256 * mib},
		"an arena that is too large":   {Spec{Ranks: 4, Pods: 2, ArenaBytes: 256 * mib}, nil, machine(700 * mib), []string{"4 ranks in 2 pods take 1.1 GiB when they start", "256 MiB of its arena", "700 MiB available on the machine: use an arena of 160MiB or less"}, 0},
		"the arena that fits":          {Spec{Ranks: 4, Pods: 2, ArenaBytes: 160 * mib}, nil, machine(700 * mib), nil, 160 * mib},
		"more than that":               {Spec{Ranks: 4, Pods: 2, ArenaBytes: 163 * mib}, nil, machine(700 * mib), []string{"160MiB or less"}, 0},
		"no arena is small enough":     {Spec{Ranks: 4, Pods: 2, ArenaBytes: 256 * mib}, nil, machine(40 * mib), []string{"40 MiB available on the machine: start fewer ranks or pods"}, 0},
		"too little for a sidecar":     {Spec{Ranks: 4, Pods: 1}, nil, group(120*mib, 128*mib), []string{"4 ranks in 1 pod take", "within the container's limit, where a sidecar keeps 175", "start fewer ranks"}, 0},
		"an arena in a control group":  {Spec{Ranks: 4, Pods: 2, ArenaBytes: 300 * mib}, nil, group(690*mib, 700*mib), []string{"use an arena of 15", "within the container's limit"}, 0},
		"an arena by a variable":       {Spec{Ranks: 4, Pods: 2}, []string{names.EnvArena + "=1GiB"}, machine(700 * mib), []string{"4 ranks in 2 pods take 4.1 GiB", "each rank 1 GiB", names.EnvArena}, 0},
		"allocations of an MPI":        {Spec{Ranks: 4, Pods: 2, MPI: "auto"}, []string{names.EnvMPIArena + "=on"}, machine(700 * mib), []string{"take 1.1 GiB when they start"}, 0},
		"allocations that are off":     {Spec{Ranks: 4, Pods: 2, MPI: "auto"}, []string{names.EnvMPIArena + "=off"}, machine(700 * mib), nil, 160 * mib},
		"allocations of no MPI":        {Spec{Ranks: 4, Pods: 2, MPI: "none"}, []string{names.EnvMPIArena + "=on"}, machine(700 * mib), nil, 160 * mib},
		"a document's default":         {Spec{Ranks: 4, Pods: 2, Document: document(4, 2)}, nil, machine(700 * mib), nil, 160 * mib},
		"a document that asks for one": {Spec{Ranks: 4, Pods: 2, Document: document(4, 2), AsksForArena: true}, nil, machine(700 * mib), []string{"take 1.1 GiB", "memory.arena of an MPIJob"}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv(names.EnvArena, "")
			t.Setenv(names.EnvMPIArena, "")
			c.s.Program, c.s.Env = []string{"true"}, c.env
			d, err := c.s.fit([]session.MemoryPool{machine(1 << 40), c.place})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if len(c.want) == 0 && (err != nil || d.Memory.ArenaBytes != c.arena) {
				t.Errorf("%+v, %v; want an arena of %d", d, err, c.arena)
			}
		})
	}
}

// document returns a document like that of an MPIJob, which has the default arena.
func document(ranks, pods int) *bootstrap.Document {
	d := (&Spec{Ranks: ranks, Pods: pods}).document()
	d.Memory.ArenaBytes = memory.ArenaDefault
	return d
}
