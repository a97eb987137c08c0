package mpi

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Files of ours that an MPI loads into the program.
const (
	providerFile = "liboutrigger-fi.so" // libfabric finds it by its name's end
	pmiFile      = "libpmi.so"          // for Open MPI 4.1
	pmixFile     = "outrigger-pmix"     // for Open MPI 5: a program
	providerName = "outrigger"
)

// Files are what MPI programs need of those that the program self finds: nothing
// where it was built without.
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

// Folder finds the folder with the provider: named by the environment, or beside
// the program self, or where the sidecar's image has it.
func Folder(self string) (string, error) {
	dir := os.Getenv(names.EnvProvider)
	tried := []string{dir}
	if dir == "" {
		beside := filepath.Dir(self)
		tried = []string{beside, filepath.Join(beside, "c"), filepath.Join(filepath.Dir(beside), "lib", "outrigger")}
	}
	for _, dir := range tried {
		if st, err := os.Stat(filepath.Join(dir, providerFile)); err == nil && st.Mode().IsRegular() {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("%s, which MPI programs need, is not in %q: build it with `make mpi`, or name its folder in %s", providerFile, tried, names.EnvProvider)
}

// environment makes an MPI of the family use the provider in dir, and nothing
// beside it: each of them has another transport that it would take without a
// word.
func environment(f Family, dir string) []string {
	env := []string{"FI_PROVIDER_PATH=" + dir, "FI_PROVIDER=" + providerName}
	if f != OpenMPI {
		env = append(env,
			// MPICH 4 and 5: its own device is ucx. Ranks of a pod talk by its shared
			// memory: with MPIR_CVAR_NOLOCAL each would be a node of its own.
			"MPIR_CVAR_CH4_NETMOD=ofi",
			// MPICH does not choose by itself where it finds PMIx too.
			"MPIR_CVAR_PMI_VERSION=1",
			// Intel MPI: its own device on one node is shared memory.
			"I_MPI_FABRICS=ofi", "I_MPI_OFI_PROVIDER="+providerName,
		)
	}
	if f != MPICH && f != Intel {
		env = append(env,
			"OMPI_MCA_pml=cm", "OMPI_MCA_mtl=ofi", "OMPI_MCA_mtl_ofi_provider_include="+providerName,
			// One-sided: over the provider, and never over tcp beside it.
			"OMPI_MCA_osc=^ucx", "OMPI_MCA_btl=self,ofi",
			// With the network's atomics btl ofi compares negative integers as unsigned
			// ones, and Open MPI 5 ends a job for MPI_MAX. Without them osc rdma computes
			// in the origin and stores by a compare-and-swap.
			"OMPI_MCA_osc_rdma_acc_use_amo=0",
			// The provider reads the places of tag bits from it (fi/openmpi.c).
			"OMPI_MCA_mtl_ofi_tag_mode=auto",
			// It makes its peers' addresses when they are first used, which
			// threads then do at once, and it fails: so at the start.
			"OMPI_MCA_mpi_add_procs_cutoff=1000000",
			// mpirun asks for this; a container's user is often root.
			"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		)
	}
	return env
}

// withoutMPIRun is what an MPI of the family needs that no mpirun has started: Open
// MPI 4.1 has a component that loads a PMI-1 library.
func withoutMPIRun(f Family, dir string) []string {
	if f == MPICH || f == Intel {
		return nil
	}
	return []string{"FLUX_JOB_ID=1", "FLUX_PMI_LIBRARY_PATH=" + filepath.Join(dir, pmiFile)}
}
