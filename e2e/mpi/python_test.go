//go:build mpi

package mpi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The modules of mpi4py's own tests, by chapters of MPI.
var (
	pointToPoint = []string{
		"test_msgzero", "test_p2p_buf", "test_p2p_buf_matched", "test_p2p_buf_part", "test_p2p_obj", "test_p2p_obj_matched",
		"test_pack", "test_request", "test_status", "test_util_pkl5",
	}
	collective = []string{
		"test_cco_buf", "test_cco_buf_inter", "test_cco_nb_buf", "test_cco_nb_vec", "test_cco_obj", "test_cco_obj_inter",
		"test_cco_pr_buf", "test_cco_pr_vec", "test_cco_vec", "test_cco_vec_inter", "test_op",
	}
	topologies    = []string{"test_comm_topo", "test_cco_ngh_buf", "test_cco_ngh_obj", "test_cco_pr_ngh_buf"}
	communicators = []string{"test_attributes", "test_comm", "test_comm_inter", "test_errhandler", "test_group", "test_session"}
	oneSided      = []string{"test_rma", "test_rma_nb", "test_win"}
)

// excluded has patterns of the names of tests that an MPI does not pass. TestPythonUpstream shows
// that they fail over the MPI's own transport, too.
var excluded = map[string][]string{
	"mpich": {"*testDistgraphcomm"},
	"intel": {"*Inplace*.testReduceScatter", "*Dynamic*.testMemory", "*Dynamic*.testAttachDetach", "*Dynamic*.testAttributes", "*Dynamic*.testGetAttr"},
}

// pythonJob returns a job that runs mpi4py's own tests over an MPI.
func pythonJob(t *testing.T, m implementation, ranks int) job {
	t.Helper()
	site, err := filepath.Glob(at(t, "mpi/mpi4py/lib/python3*/*-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("mpi4py is in %q: %v; run hack/mpi/install", site, err)
	}
	env := append(m.env, "PYTHONPATH="+site[0], "PYTHONDONTWRITEBYTECODE=1", "MPI4PY_LIBMPI="+m.library)
	return job{ranks: ranks, pods: 2, mpi: "auto", env: env, dir: at(t, "mpi/mpi4py-tests/test")}
}

// python runs modules of mpi4py's tests without the excluded ones.
func python(t *testing.T, m implementation, ranks int, modules ...string) {
	t.Helper()
	args := []string{"/usr/bin/python3", "main.py"}
	for _, pattern := range excluded[m.name] {
		args = append(args, "-x", pattern)
	}
	out := pythonJob(t, m, ranks).mustRun(t, "[0] OK", append(args, modules...)...)
	if strings.Count(out, "] OK") != ranks {
		t.Error(out)
	}
}

// pythons returns the MPIs over which mpi4py's own tests run.
func pythons(t *testing.T) []implementation { return []implementation{mpich(t), intel(t), openmpi5(t)} }

// TestPython runs mpi4py's own tests of two-sided operations, and of the objects that they use.
func TestPython(t *testing.T) {
	for _, m := range pythons(t) {
		for what, modules := range map[string][]string{
			"point-to-point": pointToPoint, "collectives": collective, "topologies": topologies, "communicators": communicators,
		} {
			t.Run(m.name+"/"+what, func(t *testing.T) { python(t, m, 2, modules...) })
		}
	}
}

// TestPythonFutures runs a pool of workers that receives its tasks by probes of synchronous
// messages. Intel MPI prints the right sum and crashes after it, also over its own tcp (docs/mpi.md).
func TestPythonFutures(t *testing.T) {
	for _, m := range []implementation{mpich(t), openmpi4(t), openmpi5(t)} {
		t.Run(m.name, func(t *testing.T) {
			j := pythonJob(t, m, 3)
			program := filepath.Join(t.TempDir(), "pool.py")
			text := "from mpi4py.futures import MPIPoolExecutor\n" +
				"def square(x): return x * x\n" +
				"if __name__ == '__main__':\n    print('sum', sum(MPIPoolExecutor().map(square, range(200))))\n"
			if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			j.mustRun(t, "sum 2646700", "/usr/bin/python3", "-m", "mpi4py.futures", program)
		})
	}
}

// TestManyPython runs the tests with more ranks than CPUs: groups of some of the ranks have several
// ranks in a pod.
func TestManyPython(t *testing.T) {
	for _, m := range pythons(t) {
		t.Run(m.name, func(t *testing.T) { python(t, m, 4, slices.Concat(topologies, communicators)...) })
	}
}

// TestPythonUpstream checks that the excluded tests fail over the MPI's own tcp, if the MPI uses the
// provider's one-sided operations there, as it does with Outrigger. In MPICH a few receives in
// thousands get another message than the preceding probe, and many if two ranks share a CPU, because
// the messages have then arrived when the rank polls.
func TestPythonUpstream(t *testing.T) {
	t.Run("mpich", func(t *testing.T) {
		m := mpich(t)
		env := []string{"MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1"}
		program := m.build(t, "probes")
		sooner(t, "receives get what probes have found", func() (string, bool) {
			out, err := own(t, job{ranks: 2, env: m.env}, hydra(t), env, program)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			return out, !strings.HasPrefix(out, "0 of ")
		})
		sooner(t, "testDistgraphcomm passes", func() (string, bool) {
			// It fails, or hangs in a receive whose message another receive got.
			test := []string{"timeout", "20", "taskset", "-c", oneProcessor(t), "/usr/bin/python3", "main.py", "test_comm_topo", "-k", "testDistgraphcomm"}
			out, err := own(t, pythonJob(t, m, 2), hydra(t), env, test...)
			var exit *exec.ExitError
			hangs := errors.As(err, &exit) && exit.ExitCode() == 124 // the exit code of timeout(1)
			return out, hangs || strings.Contains(out, "FAIL: testDistgraphcomm")
		})
	})
	t.Run("intel/pairwise", func(t *testing.T) {
		// The algorithm that Intel MPI chooses on some CPUs, between two nodes.
		env := []string{"I_MPI_FABRICS=ofi", "I_MPI_OFI_PROVIDER=tcp", "I_MPI_ADJUST_REDUCE_SCATTER=2"}
		out, err := own(t, pythonJob(t, intel(t), 2), hydra(t), env, "/usr/bin/python3", "main.py", "-f", "test_cco_buf", "-k", "Inplace")
		if err == nil || !strings.Contains(out, "FAIL: testReduceScatter") {
			t.Errorf("exclude it not, it passes: %v\n%s", err, out)
		}
	})
	t.Run("intel", func(t *testing.T) {
		m := intel(t)
		env := []string{"I_MPI_FABRICS=ofi", "I_MPI_OFI_PROVIDER=tcp", "MPIR_CVAR_CH4_OFI_ENABLE_RMA=1"}
		out, err := own(t, pythonJob(t, m, 2), hydra(t), env, "/usr/bin/python3", "main.py", "test_win.TestWinCreateDynamicWorld")
		for _, wrong := range []string{"ERROR: testMemory", "ERROR: testAttachDetach", "FAIL: testAttributes", "FAIL: testGetAttr"} {
			if err == nil || !strings.Contains(out, wrong) {
				t.Errorf("exclude it not, there is no %s: %v\n%s", wrong, err, out)
			}
		}
	})
}

// TestWindows runs mpi4py's own tests of one-sided operations, with epochs of all kinds and
// transfers of all sizes.
func TestWindows(t *testing.T) {
	for _, m := range pythons(t) {
		t.Run(m.name, func(t *testing.T) { python(t, m, 2, oneSided...) })
	}
}

// TestManyWindows runs the same tests with more ranks than CPUs.
func TestManyWindows(t *testing.T) {
	for _, m := range []implementation{mpich(t), intel(t)} {
		t.Run(m.name, func(t *testing.T) { python(t, m, 4, "test_rma", "test_rma_nb") })
	}
}

// TestScaLAPACK runs LU and Cholesky of Debian's ScaLAPACK tests, with their own checks. Cholesky has
// two ranks: with four it hangs, also over Open MPI's own transport (docs/mpi.md).
func TestScaLAPACK(t *testing.T) {
	const dir = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests"
	for program, ranks := range map[string]int{"xdlu": 4, "xdllt": 2} {
		t.Run(program, func(t *testing.T) {
			out := job{ranks: ranks, pods: 2, dir: dir}.mustRun(t, "END OF TESTS", filepath.Join(dir, program))
			if !strings.Contains(out, "    0 tests completed and failed residual checks") || strings.Count(out, "PASSED") < 3 {
				t.Error(out)
			}
		})
	}
}

// TestLoadedValues runs the cases of TestValues with types that have an offset, over Open MPI 4, in a
// program that loads its MPI by dlopen and dlsym, as PyPI's mpi4py does.
func TestLoadedValues(t *testing.T) {
	program, err := filepath.Abs("testdata/offsets.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []implementation{openmpi4(t), mpich(t)} {
		t.Run(m.name, func(t *testing.T) {
			out := pythonJob(t, m, 4).mustRun(t, "offsets: 0 wrong over 4 ranks", "/usr/bin/python3", program)
			if strings.Contains(out, "wrong: ") {
				t.Error(out)
			}
		})
	}
}
