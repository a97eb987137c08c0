//go:build !outrigger_profile

package main

// profiled runs the daemon. With the build tag outrigger_profile it writes a CPU profile, of
// which hack/pgo makes default.pgo, the input of the compiler's profile-guided optimization.
func profiled(do func() int) int { return do() }
