package mpi

import (
	"fmt"
	"os"
)

// shared is where memory is kept that processes share.
const shared = "/dev/shm"

// sharedFolder makes a folder in memory for what the processes of one pod share, or one in
// TMPDIR where there is no /dev/shm.
func sharedFolder(prefix string) (string, error) {
	folder, err := os.MkdirTemp(shared, prefix)
	if err == nil {
		return folder, nil
	}
	if folder, err = os.MkdirTemp("", prefix); err != nil {
		return "", fmt.Errorf("a folder for memory that ranks share: %w; the container needs a %s or a /tmp that it may write to, or TMPDIR", err, shared)
	}
	return folder, nil
}

// sharing has Open MPI's windows keep the memory that the ranks of a pod share in the pod's own
// folder. The files have the name of the host and the number of the job, which pods on one
// machine have in common.
func sharing(folder string) []string {
	return []string{"OMPI_MCA_osc_rdma_backing_directory=" + folder, "OMPI_MCA_osc_sm_backing_directory=" + folder}
}
