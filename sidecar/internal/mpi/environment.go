package mpi

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Files of Outrigger that an MPI loads into the program.
const (
	providerFile = "liboutrigger-fi.so" // libfabric finds it by the end of its name
	pmiFile      = "libpmi.so"          // for Open MPI 4.1
	pmixFile     = "outrigger-pmix"     // for Open MPI 5: a program
	providerName = "outrigger"
)

// Files returns the files that MPI programs need and that the program self finds, or none
// if Outrigger was built without them.
func Files(self string) []string {
	dir, err := Folder(self)
	if err != nil {
		return nil
	}
	return []string{
		filepath.Join(dir, providerFile), filepath.Join(dir, allocFile), filepath.Join(dir, stepsFile), filepath.Join(dir, checkFile), filepath.Join(dir, pmiFile), filepath.Join(dir, pmixFile),
		filepath.Join(filepath.Dir(self), agentFile),
	}
}

// Folder returns the directory with the provider: the one that the environment names, or
// one at the program self, or that of the sidecar's image.
func Folder(self string) (string, error) {
	dir := os.Getenv(names.EnvProvider)
	tried := []string{dir}
	if dir == "" {
		own := filepath.Dir(self)
		tried = []string{own, filepath.Join(own, "c"), filepath.Join(filepath.Dir(own), "lib", "outrigger")}
	}
	for _, dir := range tried {
		if st, err := os.Stat(filepath.Join(dir, providerFile)); err == nil && st.Mode().IsRegular() {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("%s, which MPI programs need, is not in %q: build it with `make mpi`, or name its folder in %s", providerFile, tried, names.EnvProvider)
}

// environment returns the variables that make an MPI of the family use the provider in dir,
// and no other transport: each MPI has another transport that it would take without a
// message.
func environment(f Family, dir string) []string {
	env := []string{"FI_PROVIDER_PATH=" + dir, "FI_PROVIDER=" + providerName}
	if f != OpenMPI {
		env = append(env,
			// MPICH 4 and 5: the default device may be ucx. Ranks of a pod use MPICH's
			// shared memory: with MPIR_CVAR_NOLOCAL each rank would be a node of its own.
			"MPIR_CVAR_CH4_NETMOD=ofi",
			// MPICH does not choose by itself if it finds PMIx, too.
			"MPIR_CVAR_PMI_VERSION=1",
			// Intel MPI: the default device on one node is shared memory.
			"I_MPI_FABRICS=ofi", "I_MPI_OFI_PROVIDER="+providerName,
		)
	}
	if f != MPICH && f != Intel {
		env = append(env,
			"OMPI_MCA_pml=cm", "OMPI_MCA_mtl=ofi", "OMPI_MCA_mtl_ofi_provider_include="+providerName,
			// One-sided operations use the provider, and never tcp.
			"OMPI_MCA_osc=^ucx", "OMPI_MCA_btl=self,ofi",
			// With the network's atomics btl ofi compares negative integers as unsigned
			// ones, and Open MPI 5 ends a job for MPI_MAX. Without them osc rdma computes
			// in the origin and stores by a compare-and-swap.
			"OMPI_MCA_osc_rdma_acc_use_amo=0",
			// The provider reads the positions of tag bits from it (fi/openmpi.c).
			"OMPI_MCA_mtl_ofi_tag_mode=auto",
			// Open MPI resolves its peers' addresses when they are first used. Threads then
			// do that at once, and it fails: so it does it at the start.
			"OMPI_MCA_mpi_add_procs_cutoff=1000000",
			// mpirun requires this if the user is root, as in many containers.
			"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		)
	}
	return env
}

// withoutMPIRun returns the variables of an MPI of the family that no mpirun has started:
// Open MPI 4.1 has a component that loads a PMI-1 library.
func withoutMPIRun(f Family, dir string) []string {
	if f == MPICH || f == Intel {
		return nil
	}
	return []string{"FLUX_JOB_ID=1", "FLUX_PMI_LIBRARY_PATH=" + filepath.Join(dir, pmiFile)}
}
