// Package cluster has the tests of the test cluster itself. They run with the build tag
// "cluster" on the cluster that `make cluster-up` left running, or by `make test-e2e`, which
// brings one up.
package cluster
