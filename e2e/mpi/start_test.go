//go:build mpi

package mpi

import (
	"strings"
	"testing"
)

// TestNoSleeps checks that no rank sleeps for a fixed time in MPI_Init or MPI_Finalize, as Open MPI
// does by sleep(1) when it closes btl ofi, in each job. A library that follows the launcher's in the
// order of symbols counts the sleeps, because times are unreliable on a loaded machine. (Intel MPI
// sleeps 250 ms, also over its provider tcp; that is not counted.)
func TestNoSleeps(t *testing.T) {
	var none implementation
	counts := none.build(t, "sleeps", "-shared", "-fPIC")
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			out := job{ranks: 4, pods: 2, env: append(m.env, "LD_PRELOAD="+counts)}.mustRun(t, "first: 0 wrong over 4 ranks", m.build(t, "first"))
			if strings.Contains(out, "slept: ") {
				t.Error(out)
			}
		})
	}
	// Check that the library counts: the sleep of a rank's program is reported.
	j := job{ranks: 1, pods: 1, mpi: "none", env: []string{"LD_PRELOAD=" + counts}}
	j.mustRun(t, "slept: nanosleep of 500 ms", "sleep", "0.5")
}
