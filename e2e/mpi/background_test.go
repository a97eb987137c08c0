//go:build mpi

package mpi

import (
	"fmt"
	"path/filepath"
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
					job{ranks: 2, pods: pods, env: env}.mustRun(t, "all went on while the ranks computed", program, what, filepath.Join(t.TempDir(), "seen"))
				})
			}
		}
	}
}
