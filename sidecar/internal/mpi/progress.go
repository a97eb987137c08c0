package mpi

import (
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// stepsFile has an MPI take steps of its own while the program computes.
const stepsFile = "liboutrigger-steps.so"

// progressing is what a program needs of which something goes on while it computes, as
// names.EnvMPIProgress says. Where another thread calls the MPI, that has to expect it:
// MPI_THREAD_SERIALIZED, also for a program that calls MPI_Init.
func progressing(f Family, dir string) (wish, error) {
	switch wanted := os.Getenv(names.EnvMPIProgress); wanted {
	case "", "off", "messages":
		return wish{}, nil
	case "all":
	default:
		return wish{}, fmt.Errorf("%s=%s: want off, messages or all", names.EnvMPIProgress, wanted)
	}
	var env []string
	if f != OpenMPI {
		env = append(env, "MPIR_CVAR_DEFAULT_THREAD_LEVEL=MPI_THREAD_SERIALIZED")
	}
	if f != MPICH && f != Intel {
		env = append(env, "OMPI_MPI_THREAD_LEVEL=2")
	}
	return preloaded(dir, stepsFile, names.EnvMPIProgress, env...)
}
