//go:build mpi

package mpi

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestThreadsUpstream: over its own tcp Open MPI keeps requests of sends that have ended,
// where another thread makes them end than the one that waits. Its pml cm tells the waiting
// thread of the end of a send before it notes that the request may be given back, so that
// the two threads may both leave that to the other, or both do it
// (ompi/mca/pml/cm/pml_cm_sendreq.h, MCA_PML_CM_THIN_SEND_REQUEST_PML_COMPLETE).
// CI runs it in its part of make test-mpi (.ci/run, Threads), on a machine with two processors.
func TestThreadsUpstream(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("it takes two threads at once, and this machine has one processor")
	}
	tcp := []string{"--bind-to", "none", "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "tcp"}
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} {
		t.Run(m.name, func(t *testing.T) {
			program, starter := m.build(t, "freed"), append([]string{m.starter(t)}, tcp...)
			sooner(t, "every request is given back", func() (string, bool) {
				out, err := own(t, job{ranks: 2, env: m.env}, starter, asRoot, program)
				if err != nil && strings.Contains(out, "free(): invalid pointer") {
					return out, true // the worst that comes of it
				}
				count := tooMany.FindStringSubmatch(out)
				if err != nil || count == nil {
					t.Fatalf("%v\n%s", err, out)
				}
				return out, count[1] != "0"
			})
		})
	}
}

// tooMany is how testdata/freed.c says it.
var tooMany = regexp.MustCompile(`(?m)^(-?\d+) users too many after`)

// asRoot lets Open MPI's mpirun start programs of root, as the tests are.
var asRoot = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
}

// hydra is MPICH's mpiexec, which starts Intel MPI's programs too.
func hydra(t *testing.T) []string {
	t.Helper()
	return []string{at(t, "mpi/mpich/bin/mpiexec.hydra")}
}

// own runs a job's program over libfabric's own tcp, by a starter and its flags.
func own(t *testing.T, j job, starter, env []string, program ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := slices.Concat(starter[1:], []string{"-n", strconv.Itoa(j.ranks)}, program)
	cmd := exec.CommandContext(ctx, starter[0], args...)
	cmd.Dir, cmd.Env = j.dir, slices.Concat(os.Environ(), j.env, env, []string{"FI_PROVIDER=tcp"})
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its ranks
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sooner or later an upstream defect shows; if it does not, what is excluded for it is to
// be no longer.
func sooner(t *testing.T, otherwise string, shows func() (out string, shown bool)) {
	t.Helper()
	for range 20 {
		if out, shown := shows(); shown {
			t.Log(out)
			return
		}
	}
	t.Errorf("%s: exclude nothing", otherwise)
}

// oneProcessor is the number of a processor that this process may use.
func oneProcessor(t *testing.T) string {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !set.IsSet(cpu) {
		cpu++
	}
	return strconv.Itoa(cpu)
}
