//go:build mpi

package mpi

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// twoSided are the modules of mpi4py's own tests of point-to-point and
// collectives, oneSided those of windows.
var (
	twoSided = []string{
		"test_p2p_buf", "test_p2p_obj", "test_p2p_buf_matched", "test_p2p_obj_matched",
		"test_cco_buf", "test_cco_obj", "test_cco_nb_buf", "test_cco_buf_inter",
	}
	oneSided = []string{"test_rma", "test_rma_nb"}
)

// python runs modules of mpi4py's own tests over an MPI.
func python(t *testing.T, m implementation, ranks int, modules ...string) {
	t.Helper()
	site, err := filepath.Glob(at(t, "mpi/mpi4py/lib/python3*/*-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("mpi4py is in %q: %v; run hack/mpi/install", site, err)
	}
	env := append(m.env, "PYTHONPATH="+site[0], "PYTHONDONTWRITEBYTECODE=1", "MPI4PY_LIBMPI="+m.library)
	j := job{ranks: ranks, pods: 2, mpi: "auto", env: env, dir: at(t, "mpi/mpi4py-tests/test")}
	out := j.mustRun(t, "[0] OK", append([]string{"/usr/bin/python3", "main.py"}, modules...)...)
	if strings.Count(out, "] OK") != ranks {
		t.Error(out)
	}
}

// TestPython runs mpi4py's own tests over MPICH, and over Open MPI 5, of which
// those of Python objects have a test that wants messages of a rank to itself to
// have been answered after ten calls (docs/mpi.md).
func TestPython(t *testing.T) {
	t.Run("mpich", func(t *testing.T) { python(t, mpich(t), 2, twoSided...) })
	t.Run("openmpi5", func(t *testing.T) {
		python(t, openmpi5(t), 2, slices.DeleteFunc(slices.Clone(twoSided), func(m string) bool { return m == "test_p2p_obj" })...)
	})
}

// TestWindows runs mpi4py's own tests of one-sided operations, which have epochs
// of all kinds, and transfers of all sizes. Intel MPI says that a window without
// attached memory has -1 bytes, over its own provider sockets too, so that test_win
// is not for it.
func TestWindows(t *testing.T) {
	t.Run("mpich", func(t *testing.T) { python(t, mpich(t), 2, append(slices.Clone(oneSided), "test_win")...) })
	t.Run("openmpi5", func(t *testing.T) { python(t, openmpi5(t), 2, append(slices.Clone(oneSided), "test_win")...) })
	t.Run("intel", func(t *testing.T) { python(t, intel(t), 2, oneSided...) })
}

// TestManyWindows is the same with more ranks than processors.
func TestManyWindows(t *testing.T) {
	for _, m := range []implementation{mpich(t), intel(t)} {
		t.Run(m.name, func(t *testing.T) { python(t, m, 4, oneSided...) })
	}
}

// TestScaLAPACK is Debian's: LU and Cholesky with their own checks. Cholesky has
// two ranks: with four it hangs over Open MPI's own transport too (docs/mpi.md).
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
