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

// TestThreadsUpstream checks that Open MPI, over its own tcp, leaks requests of completed sends if
// another thread than the one that waits completes them. Its pml cm signals the completion of a send
// to the waiting thread before it records that the request may be freed, so that neither of the two
// threads may free it, or both
// (ompi/mca/pml/cm/pml_cm_sendreq.h, MCA_PML_CM_THIN_SEND_REQUEST_PML_COMPLETE).
// CI runs the test in its part of make test-mpi (.ci/run, Threads), on a machine with two CPUs.
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
					return out, true // the worst consequence of the defect
				}
				if err != nil && strings.TrimSpace(out) == "" {
					return err.Error(), false // the defect can also make it hang for the whole of its time
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

// tooMany matches the output of testdata/freed.c.
var tooMany = regexp.MustCompile(`(?m)^(-?\d+) users too many after`)

// asRoot lets Open MPI's mpirun run as root, as the tests do.
var asRoot = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
}

// hydra returns the command of MPICH's mpiexec, which can start Intel MPI's programs, too.
func hydra(t *testing.T) []string {
	t.Helper()
	return []string{at(t, "mpi/mpich/bin/mpiexec.hydra")}
}

// own runs a job's program over libfabric's own tcp. starter is an mpirun with its flags.
func own(t *testing.T, j job, starter, env []string, program ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := slices.Concat(starter[1:], []string{"-n", strconv.Itoa(j.ranks)}, program)
	cmd := exec.CommandContext(ctx, starter[0], args...)
	cmd.Dir, cmd.Env = j.dir, slices.Concat(os.Environ(), j.env, env, []string{"FI_PROVIDER=tcp"})
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // on SIGTERM mpirun ends its ranks
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sooner repeats a run until it shows an upstream defect. If it does not, the test fails: the
// exclusions because of the defect must then be removed.
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

// oneProcessor returns the number of a CPU on which this process may run.
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
