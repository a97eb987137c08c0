package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHelp checks that hack/test-rdma with --help or an unknown argument prints its usage and
// starts nothing. It has no program to start, so that a run would fail at once.
func TestHelp(t *testing.T) {
	few := t.TempDir()
	for _, name := range []string{"bash", "dirname"} {
		at, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(few, name)); err != nil {
			t.Fatal(err)
		}
	}
	for arg, status := range map[string]int{"--help": 0, "-h": 0, "Link": 2} {
		cmd := exec.CommandContext(t.Context(), "../test-rdma", arg)
		cmd.Env = []string{"PATH=" + few}
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
			t.Errorf("%s: %v, want status %d:\n%s", arg, err, status, text)
		}
		for _, want := range []string{"RDMA_TESTS=", "RDMA_FLAGS="} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: nothing of %s in\n%s", arg, want, text)
			}
		}
		if strings.Contains(string(text), "== ") {
			t.Errorf("%s: a stage begins:\n%s", arg, text)
		}
	}
}
