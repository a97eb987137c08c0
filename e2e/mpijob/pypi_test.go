//go:build cluster

package mpijob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// imb returns a command that runs Intel's MPI benchmarks with 4 ranks, each with a partner
// on another node.
func imb(more ...string) []string {
	return slices.Concat([]string{"IMB-MPI1", "-npmin", "4", "-map", "2x2"}, more)
}

// few are options for a few repetitions of a benchmark with messages of 16 KiB to 256 KiB and
// of no bytes.
var few = []string{"-iter", "5", "-msglog", "14:18"}

// patterns are benchmarks that print a table of all lengths.
var patterns = []string{"PingPong", "Exchange", "Allreduce", "Alltoall", "Bcast"}

// The MPIs of PyPI run prebuilt programs on two nodes in a restricted namespace. Their images
// are read-only, and only Open MPI needs a /tmp.
func TestPyPI(t *testing.T) {
	t.Parallel()
	line := script("exec " + strings.Join(imb(slices.Concat(few, patterns)...), " "))
	for _, c := range []struct {
		image   string
		mpi     v1alpha1.MPI
		command []string
	}{
		{"mpich", v1alpha1.MPIMPICH, line},
		{"intelmpi", v1alpha1.MPIIntel, line},
		{"intelmpi", v1alpha1.MPIAuto, imb(slices.Concat(few, patterns)...)},
	} {
		t.Run(fmt.Sprint(c.image, "/", c.mpi), func(t *testing.T) {
			measured(t, becomes(t, submit(t, stock(restricted(t), c.image, c.mpi, c.command...)), v1alpha1.ConditionComplete))
		})
	}
	t.Run("openmpi5/OpenMPI", func(t *testing.T) { challenge(t, "openmpi5", 200, hpcc) })
}

// MPICH's own mpiexec starts its daemons on the nodes without ssh.
func TestPyPIMPIExec(t *testing.T) {
	t.Parallel()
	command := slices.Concat([]string{"mpiexec.hydra", "-n", "4"}, imb(slices.Concat(few, patterns)...))
	j := stock(restricted(t), "mpich", v1alpha1.MPIAuto, command...)
	withScratch(j, "/tmp")
	measured(t, becomes(t, submit(t, j), v1alpha1.ConditionComplete))
}

// measured checks that the benchmarks' tables are complete, and that the sidecars carried the
// messages.
func measured(t *testing.T, j *v1alpha1.MPIJob) {
	t.Helper()
	carried(t, j)
	log := says(t, j)
	for _, name := range patterns {
		if got, want := lengths(log, name), []int{0, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10}; !slices.Equal(got, want) {
			t.Errorf("%s was measured with messages of %v bytes, want %v", name, got, want)
		}
	}
	if !strings.Contains(log, "# All processes entering MPI_Finalize") || t.Failed() {
		t.Errorf("rank 0 says\n%s", log)
	}
}

// lengths returns the lengths of messages in a benchmark's table.
func lengths(log, name string) (list []int) {
	_, table, _ := strings.Cut(log, "# Benchmarking "+name+" ")
	table, _, _ = strings.Cut(table, "# Benchmarking ")
	for line := range strings.Lines(table) {
		fields := strings.Fields(strings.TrimPrefix(line, "[0]"))
		if len(fields) < 4 {
			continue
		}
		length, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		if _, err := strconv.ParseFloat(fields[len(fields)-2], 64); err == nil {
			list = append(list, length)
		}
	}
	return list
}

// A rank of an MPI that is killed is the first failure, with its pod and its node.
func TestPyPIRankKilled(t *testing.T) {
	t.Parallel()
	line := strings.Join(imb("-iter", "1000000", "-iter_policy", "off", "-time", "1000", "-msglog", "14:14", "Allreduce"), " ")
	// Kubernetes turns $$$$ into $$, which is the process ID in the shell.
	j := stock(restricted(t), "mpich", v1alpha1.MPIMPICH, script("echo $$$$ >/tmp/rank-$OUTRIGGER_RANK; exec "+line)...)
	withScratch(j, "/tmp")
	submit(t, j)
	p := podOf(t, j, 1)
	podOf(t, j, 0)
	eventually(t, func() error {
		if log := says(t, j); !strings.Contains(log, "# List of Benchmarks to run") {
			return fmt.Errorf("no benchmark has begun:\n%s", log)
		}
		return nil
	})
	kubectl(t, "exec", "-n", j.Namespace, p.Name, "-c", "app", "--", "/bin/sh", "-c", "read -r pid </tmp/rank-3 && kill -KILL $pid")
	f := failed(t, becomes(t, j, v1alpha1.ConditionFailed), "RankKilled", 3, p.Name, p.Spec.NodeName)
	if deref(f.ExitCode) != 128+9 {
		t.Errorf("exit code %d, want %d", deref(f.ExitCode), 128+9)
	}
}
