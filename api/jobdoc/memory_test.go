package jobdoc

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestArenaCounted: the arena of an MPI program that does not ask for it is counted in part,
// and every other arena in full.
func TestArenaCounted(t *testing.T) {
	size := resource.MustParse("64Mi")
	with := func(mpi v1alpha1.MPI, m v1alpha1.MemorySpec, env ...corev1.EnvVar) *v1alpha1.MPIJobSpec {
		s := &v1alpha1.MPIJobSpec{MPI: mpi, Memory: m}
		s.Template.Spec.Containers = []corev1.Container{{Name: "main", Env: env}}
		return s
	}
	for what, c := range map[string]struct {
		s    *v1alpha1.MPIJobSpec
		want int64
	}{
		"an MPI program":            {with(v1alpha1.MPIAuto, v1alpha1.MemorySpec{}), memory.ArenaFirst},
		"of a named MPI":            {with(v1alpha1.MPIOpenMPI, v1alpha1.MemorySpec{}, corev1.EnvVar{Name: names.EnvMPIArena, Value: "off"}), memory.ArenaFirst},
		"our own client":            {with(v1alpha1.MPINone, v1alpha1.MemorySpec{}), memory.ArenaDefault},
		"nothing said":              {with("", v1alpha1.MemorySpec{}), memory.ArenaDefault},
		"an arena":                  {with(v1alpha1.MPIAuto, v1alpha1.MemorySpec{Arena: &size}), 64 << 20},
		"allocations":               {with(v1alpha1.MPIAuto, v1alpha1.MemorySpec{AllocationsFrom: &size}), memory.ArenaDefault},
		"allocations by a variable": {with(v1alpha1.MPIAuto, v1alpha1.MemorySpec{}, corev1.EnvVar{Name: names.EnvMPIArena, Value: "on"}), memory.ArenaDefault},
		"an arena by a variable":    {with(v1alpha1.MPIAuto, v1alpha1.MemorySpec{}, corev1.EnvVar{Name: names.EnvArena, Value: "64MiB"}), memory.ArenaDefault},
	} {
		got := MemoryOf(c.s, &v1alpha1.FabricProfileSpec{}, 4)
		if got.Counted() != c.want || got.Arena < got.Counted() {
			t.Errorf("%s: %d bytes of %d are counted, want %d", what, got.Counted(), got.Arena, c.want)
		}
	}
}
