package mpi

import (
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// stepsFile is the library that lets an MPI make progress while the program computes.
const stepsFile = "liboutrigger-steps.so"

// progressing returns the setting of a program whose messages make progress while it
// computes, by names.EnvMPIProgress.
func progressing(dir string) (setting, error) {
	// MPICH's shared memory carries nothing while its ranks compute: with this variable the
	// messages of a pod use the sidecar.
	const nolocal = "MPIR_CVAR_NOLOCAL=1"
	switch wanted := os.Getenv(names.EnvMPIProgress); wanted {
	case "", "off":
		return setting{}, nil
	case "messages":
		return setting{env: []string{nolocal}}, nil
	case "all":
		return preloaded(dir, stepsFile, names.EnvMPIProgress, nolocal)
	default:
		return setting{}, fmt.Errorf("%s=%s: want off, messages or all", names.EnvMPIProgress, wanted)
	}
}
