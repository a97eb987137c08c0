package mpi

import (
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// stepsFile has an MPI take steps of its own while the program computes.
const stepsFile = "liboutrigger-steps.so"

// progressing is what a program needs of which something goes on while it computes, as
// names.EnvMPIProgress says.
func progressing(dir string) (wish, error) {
	// MPICH's own shared memory carries nothing while its ranks compute: with this variable
	// the messages of a pod go by the sidecar.
	const nolocal = "MPIR_CVAR_NOLOCAL=1"
	switch wanted := os.Getenv(names.EnvMPIProgress); wanted {
	case "", "off":
		return wish{}, nil
	case "messages":
		return wish{env: []string{nolocal}}, nil
	case "all":
		return preloaded(dir, stepsFile, names.EnvMPIProgress, nolocal)
	default:
		return wish{}, fmt.Errorf("%s=%s: want off, messages or all", names.EnvMPIProgress, wanted)
	}
}
