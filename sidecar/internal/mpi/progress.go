package mpi

import (
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// progressing is the environment of a program of which something goes on while it
// computes, as names.EnvMPIProgress says. Where the provider's thread calls the MPI, that
// has to expect it: MPI_THREAD_MULTIPLE, also for a program that calls MPI_Init.
func progressing(f Family) ([]string, error) {
	switch wanted := os.Getenv(names.EnvMPIProgress); wanted {
	case "", "off", "messages":
		return nil, nil
	case "all":
	default:
		return nil, fmt.Errorf("%s=%s: want off, messages or all", names.EnvMPIProgress, wanted)
	}
	var env []string
	if f != OpenMPI {
		env = append(env, "MPIR_CVAR_DEFAULT_THREAD_LEVEL=MPI_THREAD_MULTIPLE")
	}
	if f != MPICH && f != Intel {
		env = append(env, "OMPI_MPI_THREAD_LEVEL=3")
	}
	return env, nil
}

// wishes is the environment of what a job may ask for beside its MPI.
func wishes(f Family, dir string) ([]string, error) {
	placing, err := placement(dir)
	if err != nil {
		return nil, err
	}
	progress, err := progressing(f)
	return append(placing, progress...), err
}
