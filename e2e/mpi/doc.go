// Package mpi runs unmodified MPI programs and libraries over sidecars, and the test programs of the
// C client: `make test-mpi`. Its tests have the build tag mpi, because they need the MPIs that
// hack/mpi/install installs.
package mpi
