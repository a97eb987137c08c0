//go:build mpi

package mpi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// bin is the folder of the programs that make builds and the MPIs that hack/mpi/install installs.
const bin = "../../bin"

// jobTime is the time after which a job counts as hung.
const jobTime = 2 * time.Minute

// implementation is an unmodified MPI.
type implementation struct {
	name    string
	headers []string // for gcc
	link    []string // for gcc
	env     []string // environment of its programs
	library string   // for mpi4py
}

func at(t testing.TB, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{bin}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// mpich returns PyPI's MPICH 5.
func mpich(t testing.TB) implementation {
	lib := at(t, "mpi/mpich/lib")
	return implementation{
		name: "mpich", headers: []string{"-I" + at(t, "mpi/mpich/include")}, link: []string{"-L" + lib, "-lmpi"},
		env: []string{"LD_LIBRARY_PATH=" + lib}, library: lib + "/libmpi.so.12",
	}
}

// intel returns PyPI's Intel MPI, which runs programs built for MPICH. Its package has no libfabric;
// it uses that of MPICH's package.
func intel(t testing.TB) implementation {
	m, lib := mpich(t), at(t, "mpi/intel/lib")
	m.name, m.library = "intel", lib+"/libmpi.so.12"
	m.env = []string{"LD_LIBRARY_PATH=" + lib + ":" + at(t, "mpi/mpich/lib/mpich")}
	return m
}

// openmpi4 returns Debian's Open MPI 4.1.
func openmpi4(testing.TB) implementation {
	const dir = "/usr/lib/x86_64-linux-gnu/openmpi"
	return implementation{
		name: "openmpi4", headers: []string{"-I" + dir + "/include", "-I" + dir + "/include/openmpi"}, link: []string{"-L" + dir + "/lib", "-lmpi"},
		library: "/usr/lib/x86_64-linux-gnu/libmpi.so.40",
	}
}

// openmpi5 returns PyPI's Open MPI 5, which finds its ranks by PMIx.
func openmpi5(t testing.TB) implementation {
	lib := at(t, "mpi/openmpi/lib")
	return implementation{
		name: "openmpi5", headers: []string{"-I" + at(t, "mpi/openmpi/include")},
		link: []string{"-L" + lib, "-lmpi", "-Wl,-rpath-link," + lib + "/openmpi"},
		env:  []string{"LD_LIBRARY_PATH=" + lib}, library: lib + "/libmpi.so.40",
	}
}

func all(t testing.TB) []implementation {
	return []implementation{mpich(t), intel(t), openmpi4(t), openmpi5(t)}
}

// build compiles a program of testdata with an MPI's headers and libraries.
func (m *implementation) build(t *testing.T, name string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	args := slices.Concat([]string{"-O1", "-Wall", "-Werror", "-o", out, filepath.Join("testdata", name+".c"), "-pthread"}, flags, m.headers)
	if text, err := exec.CommandContext(t.Context(), "gcc", append(args, m.link...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// job is a run of `outrigger run`.
type job struct {
	ranks, pods int
	mpi         string // default: auto
	env         []string
	dir         string
	mount       string   // arguments of a mount(8) in the job's own mount namespace; "": none
	flags       []string // of outrigger run
	stdin       io.Reader
	file        string // file of an MPIJob, instead of flags
}

// sharedMemory returns the arguments of a mount of a separate /dev/shm.
func sharedMemory(size string) string { return "-t tmpfs -o size=" + size + " tmpfs /dev/shm" }

// unsaid is the value of job.mpi for a run without --mpi.
const unsaid = "unsaid"

// run runs a program and returns its exit code and all output.
func (j job) run(t *testing.T, program ...string) (int, string) {
	t.Helper()
	if j.mpi == "" {
		j.mpi = "auto"
	}
	ctx, cancel := context.WithTimeout(t.Context(), jobTime)
	defer cancel()
	args := []string{"run", "-n", fmt.Sprint(j.ranks), "--pods", fmt.Sprint(j.pods)}
	switch {
	case j.file != "":
		args = []string{"run", "-f", j.file, "--quiet-ignored"}
	case j.mpi != unsaid:
		args = append(args, "--mpi", j.mpi)
	}
	args = append(append(append(args, j.flags...), "--"), program...)
	line := append([]string{at(t, "outrigger")}, args...)
	if j.mount != "" {
		line = append([]string{"unshare", "--mount", "sh", "-c", `mount $0 && exec "$@"`, j.mount}, line...)
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), j.env...), j.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.stdin, &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%v has not ended within %v\n%s", program, jobTime, out.String())
	}
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// mustRun runs a program, and checks that it exits with 0 and that its output contains says.
func (j job) mustRun(t *testing.T, says string, program ...string) string {
	t.Helper()
	code, out := j.run(t, program...)
	if code != 0 || !strings.Contains(out, says) {
		t.Fatalf("%v: exit code %d, want 0 and %q\n%s", program, code, says, out)
	}
	return out
}
