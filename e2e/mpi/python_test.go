//go:build mpi

package mpi

import (
	"path/filepath"
	"strings"
	"testing"
)

// modules of mpi4py's own tests: point-to-point and collectives.
var modules = []string{
	"test_p2p_buf", "test_p2p_obj", "test_p2p_buf_matched", "test_p2p_obj_matched",
	"test_cco_buf", "test_cco_obj", "test_cco_nb_buf", "test_cco_buf_inter",
}

// TestPython runs mpi4py's own tests over MPICH.
func TestPython(t *testing.T) {
	site, err := filepath.Glob(at(t, "mpi/mpi4py/lib/python3*/*-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("mpi4py is in %q: %v; run hack/mpi/install", site, err)
	}
	m := mpich(t)
	env := append(m.env, "PYTHONPATH="+site[0], "PYTHONDONTWRITEBYTECODE=1", "MPI4PY_LIBMPI="+m.library)
	j := job{ranks: 2, pods: 2, env: env, dir: at(t, "mpi/mpi4py-tests/test")}
	out := j.mustRun(t, "[0] OK", append([]string{"/usr/bin/python3", "main.py"}, modules...)...)
	if !strings.Contains(out, "[1] OK") {
		t.Error(out)
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
