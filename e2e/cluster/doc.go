// Package cluster is the tests that need real nodes: they run with the build
// tag "cluster" on the cluster that `make cluster-up` left running, or by
// `make test-e2e`, which brings one up for them.
package cluster
