package mpi

import (
	"github.com/outrigger-hpc/outrigger/api/names"
)

// checkFile is the library that ends a process whose MPI has selected another transport
// (clientlib/c/check).
const checkFile = "liboutrigger-check.so"

// checking returns the setting of every process of an MPI job. If a program does not show
// its MPI, the library reports to the sidecar whether a process has loaded one.
func checking(f Family, dir string) (setting, error) {
	how := "select"
	if f == unknown {
		how = "loaded"
	}
	return preloaded(dir, checkFile, "--mpi", names.EnvMPICheck+"="+how)
}
