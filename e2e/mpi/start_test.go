//go:build mpi

package mpi

import (
	"strings"
	"testing"
)

// TestNoSleeps: no rank sleeps for a fixed time in MPI_Init or MPI_Finalize, as Open MPI does when it
// closes btl ofi: by sleep(1), in each job. The sleeps are counted by a library behind the
// launcher's, since their time says little on a loaded machine. (Intel MPI sleeps 250 ms, over its
// provider tcp too, which is not counted.)
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
	// The library counts: a program of a rank that sleeps is seen.
	j := job{ranks: 1, pods: 1, mpi: "none", env: []string{"LD_PRELOAD=" + counts}}
	j.mustRun(t, "slept: nanosleep of 500 ms", "sleep", "0.5")
}
