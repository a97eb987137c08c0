// Package mpijob tests MPIJobs on the test cluster: what a user sees of a job
// that succeeds, and of every way in which one can fail.
package mpijob
