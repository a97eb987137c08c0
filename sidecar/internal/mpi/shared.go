package mpi

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// shared is where memory is kept that processes share.
const shared = "/dev/shm"

// sharedNeed is what each pod must find there: Open MPI 4.1 takes a little more than 8 MiB at the
// start for PMIx, and its windows take more. A process that touches more than there is ends by
// SIGBUS.
const sharedNeed = 16 << 20

// sharedFolder makes a folder in memory for what the processes of a pod share, or one in TMPDIR
// where there is no /dev/shm, or not enough of it for all pods of this machine.
func sharedFolder(prefix string, pods int) (string, error) {
	if free(shared) >= uint64(pods)*sharedNeed {
		if folder, err := os.MkdirTemp(shared, prefix); err == nil {
			return folder, nil
		}
	}
	folder, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", fmt.Errorf("a folder for memory that ranks share: %w; the container needs a %s of %d MiB for each pod, or a /tmp that it may write to, or TMPDIR", err, shared, sharedNeed>>20)
	}
	return folder, nil
}

// free is how many bytes a file system has; 0 where there is none.
func free(path string) uint64 {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}

// here is how many pods share this machine, as far as their addresses tell.
func (p *place) here() int {
	if p.machines < len(p.layout) {
		return len(p.layout)
	}
	return 1
}

// sharing has Open MPI's windows keep the memory that the ranks of a pod share in the pod's own
// folder. The files have the name of the host and the number of the job, which pods on one
// machine have in common.
func sharing(folder string) []string {
	return []string{"OMPI_MCA_osc_rdma_backing_directory=" + folder, "OMPI_MCA_osc_sm_backing_directory=" + folder}
}
