//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestForked checks that no call of a rank's child affects its parent's session.
func TestForked(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) {
			job{ranks: 2, pods: pods, mpi: "none"}.mustRun(t, "every message of 20 rounds right", at(t, "c/forked"))
		})
	}
}

// TestAgain checks that the C client can open a session after it has closed one.
func TestAgain(t *testing.T) {
	for _, pods := range []int{1, 2} {
		out := job{ranks: 4, pods: pods, mpi: "none"}.mustRun(t, "8 sessions right", at(t, "c/again"))
		if n := strings.Count(out, "8 sessions right"); n != 4 {
			t.Errorf("%d ranks are right, want 4\n%s", n, out)
		}
	}
}

// openWhileForking runs clientlib/c/test/opening.c.
func openWhileForking(t *testing.T, program string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, filepath.Join(t.TempDir(), "s"))
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "children inherited no descriptor") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestForkedWhileOpening checks that a child that is forked during an open or a close inherits
// nothing of the session.
func TestForkedWhileOpening(t *testing.T) { openWhileForking(t, at(t, "c/opening")) }

// TestForkedSanitized runs both tests under the compiler's sanitizers.
func TestForkedSanitized(t *testing.T) {
	for _, s := range []string{"address,undefined", "thread"} {
		t.Run(s, func(t *testing.T) {
			dir := sanitized(t, s)
			program := filepath.Join(dir, "forked")
			// Memory that only threads of the parent refer to would be a leak in a child.
			env := []string{"TSAN_OPTIONS=die_after_fork=0", "ASAN_OPTIONS=detect_leaks=0"}
			job{ranks: 2, pods: 2, mpi: "none", env: env}.mustRun(t, "every message of 20 rounds right", program)
			openWhileForking(t, filepath.Join(dir, "opening"), env...)
		})
	}
}

// TestForkingMPI checks that ranks of MPI programs can fork while messages are in flight.
func TestForkingMPI(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "forked over 4 ranks", m.build(t, "forks"))
		})
	}
}
