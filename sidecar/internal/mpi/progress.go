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
	switch wanted := os.Getenv(names.EnvMPIProgress); wanted {
	case "", "off", "messages":
		return wish{}, nil
	case "all":
	default:
		return wish{}, fmt.Errorf("%s=%s: want off, messages or all", names.EnvMPIProgress, wanted)
	}
	return preloaded(dir, stepsFile, names.EnvMPIProgress)
}
