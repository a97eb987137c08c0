// Package mpi runs MPI programs as others made them over sidecars: `make
// test-mpi`. Its tests have the build tag mpi, since they need what
// hack/mpi/install installs.
package mpi
