package mpi

import (
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

func TestProgressing(t *testing.T) {
	const mpich, open = "MPIR_CVAR_DEFAULT_THREAD_LEVEL=MPI_THREAD_MULTIPLE", "OMPI_MPI_THREAD_LEVEL=3"
	for _, c := range []struct {
		said   string
		family Family
		want   []string
	}{
		{"", Auto, nil},
		{"off", MPICH, nil},
		{"messages", OpenMPI, nil},
		{"all", Auto, []string{mpich, open}},
		{"all", MPICH, []string{mpich}},
		{"all", Intel, []string{mpich}},
		{"all", OpenMPI, []string{open}},
	} {
		t.Setenv(names.EnvMPIProgress, c.said)
		if env, err := wishes(c.family, t.TempDir()); err != nil || !slices.Equal(env, c.want) {
			t.Errorf("%q for %v: %q, %v, want %q", c.said, c.family, env, err, c.want)
		}
	}
	for _, said := range []string{"on", "1", "ALL"} {
		t.Setenv(names.EnvMPIProgress, said)
		if env, err := wishes(Auto, t.TempDir()); err == nil || !strings.Contains(err.Error(), "want off, messages or all") {
			t.Errorf("%q: %q, %v", said, env, err)
		}
	}
}
