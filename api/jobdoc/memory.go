package jobdoc

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// MemoryOf reads the wishes of a job of that many pods. An MPI program takes little of an
// arena that was not asked for; a program of Outrigger's own client may take all of it.
func MemoryOf(s *v1alpha1.MPIJobSpec, p *v1alpha1.FabricProfileSpec, pods int32) memory.Sizes {
	m := &s.Memory
	mpi := s.MPI != "" && s.MPI != v1alpha1.MPINone
	out := memory.Sizes{
		Arena: memory.ArenaDefault, First: mpi && !AsksForArena(s), MPI: mpi, Slab: memory.SlabDefault, Credit: memory.CreditOf(int(pods)),
		Encrypted: p.Encryption == v1alpha1.EncryptionTLS,
	}
	for _, f := range []struct {
		to   *int64
		from *resource.Quantity
	}{{&out.Arena, m.Arena}, {&out.Slab, m.Slab}, {&out.Credit, p.Credit}} {
		if f.from != nil {
			*f.to = f.from.Value()
		}
	}
	return out
}

// AsksForArena reports whether a job asks for the arena of its ranks: by its size, for their
// allocations, or by a variable of a container.
func AsksForArena(s *v1alpha1.MPIJobSpec) bool {
	if s.Memory.Arena != nil || s.Memory.AllocationsFrom != nil {
		return true
	}
	for i := range s.Template.Spec.Containers {
		for _, e := range s.Template.Spec.Containers[i].Env {
			if e.Name == names.EnvArena || e.Name == names.EnvMPIArena && e.Value != "off" {
				return true
			}
		}
	}
	return false
}

// Progress is OUTRIGGER_MPI_PROGRESS of a job's ranks; empty: nothing is said.
func Progress(p v1alpha1.MPIProgress) string { return strings.ToLower(string(p)) }

// Allocations is OUTRIGGER_MPI_ARENA of a job's ranks: from how many bytes on an MPI
// program's allocations lie in the arena; empty: none does.
func Allocations(m *v1alpha1.MemorySpec) string {
	if m.AllocationsFrom == nil {
		return ""
	}
	return strconv.FormatInt(m.AllocationsFrom.Value(), 10)
}
