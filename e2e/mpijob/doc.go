// Package mpijob tests MPIJobs on the test cluster: what a user sees of jobs that succeed and
// that fail in each possible way.
package mpijob
