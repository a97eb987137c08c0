package mpi

import (
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/remote"
)

// hostFile gives the programs of a pod a host name (clientlib/c/host).
const hostFile = "liboutrigger-host.so"

// hostname gives the daemons of an mpirun, and the ranks that they start, the name of their pod
// where several pods are on one machine: an mpirun takes daemons with one name for one node.
func (s *Starter) hostname() ([]wish, error) {
	if s.job.machines == len(s.job.layout) {
		return nil, nil
	}
	w, err := preloaded(s.dir, hostFile, names.EnvHost, names.EnvHost+"="+remote.Host(s.job.pod))
	return []wish{w}, err
}
