package mpi

import (
	"github.com/outrigger-hpc/outrigger/api/names"
)

// checkFile ends a process whose MPI has selected another transport (clientlib/c/check).
const checkFile = "liboutrigger-check.so"

// checking is what every process of an MPI job has. Of a program that does not show its MPI the
// sidecar hears whether a process has loaded one.
func checking(f Family, dir string) (wish, error) {
	how := "select"
	if f == unknown {
		how = "loaded"
	}
	return preloaded(dir, checkFile, "--mpi", names.EnvMPICheck+"="+how)
}
