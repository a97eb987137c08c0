package jobdoc

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// MemoryOf returns the memory settings of a job of that many pods. An MPI program uses
// little of an arena that the job does not ask for; a program of Outrigger's own client
// may use all of it.
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

// AsksForArena reports whether a job asks for the arena of its ranks: by its size, by
// allocationsFrom, or by a variable of a container.
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

// Progress returns OUTRIGGER_MPI_PROGRESS of a job's ranks; empty if the job does not
// set it.
func Progress(p v1alpha1.MPIProgress) string { return strings.ToLower(string(p)) }

// Allocations returns OUTRIGGER_MPI_ARENA of a job's ranks, the size in bytes from
// which an MPI program's allocations are in the arena; empty if none is.
func Allocations(m *v1alpha1.MemorySpec) string {
	if m.AllocationsFrom == nil {
		return ""
	}
	return strconv.FormatInt(m.AllocationsFrom.Value(), 10)
}
