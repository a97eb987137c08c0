//go:build mpi

package mpi

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestBackground: what OUTRIGGER_MPI_PROGRESS says goes on while ranks compute and call
// nothing of MPI.
func TestBackground(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "background")
		for _, pods := range []int{1, 2} {
			for _, what := range []string{"messages", "all"} {
				t.Run(fmt.Sprintf("%s/pods=%d/%s", m.name, pods, what), func(t *testing.T) {
					env := append(m.env, names.EnvMPIProgress+"="+what)
					// Where the kernel has put a job's processes decides whether other threads are
					// woken, for all its turns: one job in ten had more than a quarter woken, of
					// code that had not before. What is not so by chance is not so in four jobs.
					for again := range 4 {
						code, out := job{ranks: 2, pods: pods, env: env}.run(t, program, what, filepath.Join(t.TempDir(), fmt.Sprint("seen", again)))
						if code == 0 && strings.Contains(out, "all went on while the ranks computed") {
							return
						}
						if again == 3 || !strings.Contains(out, "another thread was woken") {
							t.Fatalf("exit code %d\n%s", code, out)
						}
					}
				})
			}
		}
	}
}

// TestWatched: a watcher of the C client moves the messages of ranks that compute, also
// beside their own looks; sanitized under the compiler's.
func TestWatched(t *testing.T) {
	const says = "rank 1 exchanged 60 times"
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) {
			job{ranks: 2, pods: pods, mpi: "none"}.mustRun(t, says, at(t, "c/watch"))
		})
	}
	for _, s := range []string{"address,undefined", "thread"} {
		t.Run("sanitized/"+s, func(t *testing.T) {
			job{ranks: 2, pods: 2, mpi: "none"}.mustRun(t, says, filepath.Join(sanitized(t, s), "watch"))
		})
	}
}

// TestWatcherMissesNothing: what happens while a watcher falls asleep wakes it.
func TestWatcherMissesNothing(t *testing.T) {
	job{ranks: 1, pods: 1, mpi: "none"}.mustRun(t, "nothing was missed", at(t, "c/missed"))
}

// TestInterrupted: ranks that end in a signal's handler, maybe with locks that nobody lets go
// of any more, end.
func TestInterrupted(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "interrupted")
		for _, what := range []string{"off", "all"} {
			t.Run(m.name+"/"+what, func(t *testing.T) {
				env := append(m.env, names.EnvMPIProgress+"="+what)
				// Whose messages were not over counts as failed, or aborts the other one.
				if _, out := (job{ranks: 2, pods: 2, env: env}).run(t, program); !strings.Contains(out, "exchanging") {
					t.Fatal(out)
				}
			})
		}
	}
}

// TestSidecarKilled: ranks whose sidecar has ended learn of it by their requests, and end by
// an error of their MPI's; the sidecar is named.
func TestSidecarKilled(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "orphaned")
		for _, what := range []string{"off", "all"} {
			t.Run(m.name+"/"+what, func(t *testing.T) {
				env := append(m.env, names.EnvMPIProgress+"="+what)
				code, out := job{ranks: 2, pods: 2, env: env}.run(t, program)
				if code == 0 || !strings.Contains(out, "the sidecar of pod 1 (rank 1) ended: killed by SIGKILL") || strings.Contains(out, "Segmentation fault") {
					t.Fatalf("exit code %d\n%s", code, out)
				}
			})
		}
	}
}
