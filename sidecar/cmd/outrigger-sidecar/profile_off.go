//go:build !outrigger_profile

package main

// profiled runs the daemon. With the build tag outrigger_profile it is profiled: hack/pgo
// makes default.pgo of that, by which the compiler chooses what to inline in this program.
func profiled(do func() int) int { return do() }
