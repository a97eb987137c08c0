//go:build mpi

package mpi

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestBackground checks that the operations selected by OUTRIGGER_MPI_PROGRESS progress while ranks
// compute and do not call MPI.
func TestBackground(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "background")
		for _, pods := range []int{1, 2} {
			for _, what := range []string{"messages", "all"} {
				t.Run(fmt.Sprintf("%s/pods=%d/%s", m.name, pods, what), func(t *testing.T) {
					env := append(m.env, names.EnvMPIProgress+"="+what)
					// How the kernel has assigned the processes to CPUs decides, for the whole job,
					// whether other threads are woken: with unchanged code one job in ten had more
					// than a quarter of them woken. Other work of the machine can delay all messages of
					// a job. A real defect shows in all of four jobs.
					for again := range 4 {
						code, out := job{ranks: 2, pods: pods, env: env}.run(t, program, what, filepath.Join(t.TempDir(), fmt.Sprint("seen", again)))
						if code == 0 && strings.Contains(out, "all went on while the ranks computed") {
							return
						}
						delayed := strings.Contains(out, "another thread was woken") || strings.Contains(out, "the soonest of 40 messages")
						if again == 3 || !delayed {
							t.Fatalf("exit code %d\n%s", code, out)
						}
					}
				})
			}
		}
	}
}

// TestComputingTarget checks that accesses to a window of a rank that computes end without a call of
// that rank, unless the job has turned that off, which adds no thread, and that later ones wait for less
// time than the first. A target that waits in MPI does not sleep between them. MPICH and Intel MPI leave puts
// and gets between pods to the network; Open MPI all accesses.
func TestComputingTarget(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "computes")
		pods, adds := []int{2}, "0"
		if strings.HasPrefix(m.name, "openmpi") {
			pods, adds = []int{1, 2}, "1"
		}
		for _, n := range pods {
			for value, threads := range map[string]string{"": "1", "off": "0"} {
				t.Run(fmt.Sprintf("%s/pods=%d/%s", m.name, n, cmp.Or(value, "default")), func(t *testing.T) {
					env := append(m.env, names.EnvMPIProgress+"="+value)
					out := job{ranks: 2, pods: n, env: env}.mustRun(t, "the accesses ended while the target computed", program, filepath.Join(t.TempDir(), "over"), threads, adds)
					if value == "" {
						if ms := figure(t, out, "median of 21 phases "); ms > 10 {
							t.Errorf("a put in each phase of computation took %v ms, want at most 10: half of the first one\n%s", ms, out)
						}
					}
					if slept := figure(t, out, "a rank that waits slept "); slept > 0.5 {
						t.Errorf("a target that waits in MPI slept %v times for each put\n%s", slept, out)
					}
				})
			}
		}
	}
}

// TestTestsDoNotSleep checks that ranks on shared processors do not sleep in calls that only test. The
// functions of MPICH that end in a jump to a function without a name are not recognized.
func TestTestsDoNotSleep(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			calls := "3"
			if m.name == "mpich" {
				calls = "1"
			}
			job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "tests do not sleep", m.build(t, "tests"), calls)
		})
	}
}

// figure returns the number after a text in the output.
func figure(t *testing.T, out, after string) (x float64) {
	t.Helper()
	_, rest, _ := strings.Cut(out, after)
	if _, err := fmt.Sscan(rest, &x); err != nil {
		t.Fatalf("no number after %q\n%s", after, out)
	}
	return x
}

// TestWatched checks that a watcher of the C client moves the messages of ranks that compute, also
// if the ranks poll at the same time, plain and under the compiler's sanitizers.
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

// TestWatcherMissesNothing checks that an event that happens while a watcher is falling asleep
// wakes it.
func TestWatcherMissesNothing(t *testing.T) {
	job{ranks: 1, pods: 1, mpi: "none"}.mustRun(t, "nothing was missed", at(t, "c/missed"))
}

// TestInterrupted checks that ranks that exit in a signal handler end, also if the interrupted
// thread holds locks.
func TestInterrupted(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "interrupted")
		for _, what := range []string{"off", "all"} {
			t.Run(m.name+"/"+what, func(t *testing.T) {
				env := append(m.env, names.EnvMPIProgress+"="+what)
				// A rank whose messages have not completed counts as failed, or aborts the other.
				if _, out := (job{ranks: 2, pods: 2, env: env}).run(t, program); !strings.Contains(out, "exchanging") {
					t.Fatal(out)
				}
			})
		}
	}
}

// TestSidecarKilled checks that requests of ranks whose sidecar has ended fail, that the MPI then
// ends the ranks with an error, and that the job's verdict names the sidecar.
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
