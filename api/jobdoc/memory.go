package jobdoc

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Memory is what a sidecar reserves, in bytes.
type Memory struct {
	Arena  int64 // a rank
	Slab   int64 // a rank
	Credit int64 // a peer: eager messages that nobody has asked for yet
}

// What is taken where the job says nothing.
const (
	ArenaDefault  = 256 << 20
	SlabDefault   = 4 << 20
	CreditDefault = 1 << 20
)

// Base is what a sidecar needs for itself: the program, its heap, the kernel's
// buffers of its connections.
const (
	baseBytes = 96 << 20
	peerBytes = 1 << 20 // socket buffers and records
)

// MemoryOf reads a job's wishes.
func MemoryOf(m *v1alpha1.MemorySpec, p *v1alpha1.FabricProfileSpec) Memory {
	out := Memory{Arena: ArenaDefault, Slab: SlabDefault, Credit: CreditDefault}
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

// Bytes is the memory of a sidecar with ranks ranks in a job of pods pods. All
// of it is charged to the sidecar, which touches every page first.
func (m Memory) Bytes(ranks, pods int32) int64 {
	return int64(ranks)*(m.Arena+m.Slab) + int64(pods-1)*(m.Credit+peerBytes) + baseBytes
}
