package why

import "github.com/outrigger-hpc/outrigger/api/shm"

// mpiNames are the collectives that have a fixed tag in an MPI. Other collectives, such as
// non-blocking ones, have numbers from which the collective is not known. A collective may be
// made of others: an MPI_Allreduce of MPI_Reduce and MPI_Bcast, for example.
var mpiNames = map[uint32]map[uint32]string{
	shm.TagsOpenMPI: openMPINames, // ompi/mca/coll/base/coll_tags.h, 4.1 and 5.0: the tag is -10 less its place
	shm.TagsMPICH:   mpichNames,   // src/include/mpir_tags.h, 4 and 5
}

var openMPINames = func() map[uint32]string {
	names := map[uint32]string{}
	for i, name := range []string{
		"Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Alltoallw", "Barrier", "Bcast", "Exscan", "Gather", "Gatherv",
		"Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Scatter", "Scatterv",
	} {
		names[-uint32(10+i)] = "MPI_" + name
	}
	return names
}()

var mpichNames = map[uint32]string{
	1: "MPI_Barrier", 2: "MPI_Bcast", 3: "MPI_Gather", 4: "MPI_Gatherv", 5: "MPI_Scatter", 6: "MPI_Scatterv",
	7: "MPI_Allgather", 8: "MPI_Allgatherv", 9: "MPI_Alltoall", 10: "MPI_Alltoallv", 11: "MPI_Reduce", 14: "MPI_Allreduce",
	17: "MPI_Reduce_scatter", 20: "MPI_Scan", 24: "MPI_Exscan", 25: "MPI_Alltoallw", 28: "MPI_Reduce_scatter_block",
}

// mpiRooted are the collectives with a root.
var mpiRooted = []string{"MPI_Bcast", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter", "MPI_Scatterv", "MPI_Reduce"}

// mpiName returns the collective of a tag in a layout; empty if it is not known.
func mpiName(layout uint32, kind string, tag uint32) string {
	if kind != MPICollective {
		return ""
	}
	return mpiNames[layout][tag]
}

// mpiPart returns a name for use within the parentheses of a collective's text.
func mpiPart(name string) string {
	if name == "" {
		return ""
	}
	return "message of " + name
}
