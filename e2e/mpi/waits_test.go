//go:build mpi

package mpi

import (
	"strings"
	"testing"
)

// TestDeadlocks: MPI programs that wait for ever are told, and end where that is asked for;
// MPIs poll. None is told that computes, pauses or waits for one that does.
func TestDeadlocks(t *testing.T) {
	const suspicion = "suspected deadlock: every rank has waited for 1 s or longer"
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "waits")
			for _, what := range []string{"missing message", "tests"} {
				code, out := job{ranks: 4, pods: 2, env: m.env, flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}.run(t, program, what, "0")
				if code != 124 || !strings.Contains(out, suspicion) {
					t.Errorf("%s: exit code %d, want 124 and %q\n%s", what, code, suspicion, out)
				}
			}
			for _, what := range []string{"computes", "tests, then computes", "waits long"} {
				code, out := job{ranks: 4, pods: 2, env: m.env, flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}.run(t, program, "right: "+what, "3")
				if code != 0 || strings.Contains(out, "suspected deadlock") {
					t.Errorf("%s: exit code %d\n%s", what, code, out)
				}
			}
		})
	}
}
