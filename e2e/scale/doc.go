// Package scale runs many MPIJobs at once against a real API server with
// Kubernetes' own controllers and scheduler, and counts what the operator does:
// its calls for each job, and its silence when nothing happens. The operator is
// the program that is shipped. Only the kubelets are stand-ins: nothing runs in
// the pods.
//
// The test judges what a slow machine does not change: states and counts. Times,
// CPU and memory are printed; docs/BENCHMARKS.md has them.
package scale
