package mpi

import (
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/remote"
)

// hostFile is the library that gives the programs of a pod a host name (clientlib/c/host).
const hostFile = "liboutrigger-host.so"

// hostname returns the setting that gives the daemons of an mpirun, and the ranks that they
// start, the name of their pod if several pods are on one machine: an mpirun takes daemons
// with one host name for one node.
func (s *Starter) hostname() ([]setting, error) {
	if s.job.machines == len(s.job.layout) {
		return nil, nil
	}
	w, err := preloaded(s.dir, hostFile, names.EnvHost, names.EnvHost+"="+remote.Host(s.job.pod))
	return []setting{w}, err
}
