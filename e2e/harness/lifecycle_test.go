//go:build cluster

package harness_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
)

// cluster runs the program bin/cluster, as a developer does, for the cluster
// that the environment names.
func cluster(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("bin/cluster", args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	t.Logf("cluster %s: %v\n%s", strings.Join(args, " "), err, out)
	return string(out), err
}

// A cluster with another name can run at the same time as others. After its first process was
// killed it can be brought up again, and taken down it leaves nothing.
func TestKilledClusterComesBackAndLeavesNothing(t *testing.T) {
	const name = "story"
	t.Setenv("OUTRIGGER_CLUSTER", name)
	t.Cleanup(func() {
		if _, err := cluster(t, "down"); err != nil {
			t.Error(err)
		}
	})
	if _, err := cluster(t, "up", "--nodes=1"); err != nil {
		t.Fatal(err)
	}
	if out, err := cluster(t, "up"); err == nil || !strings.Contains(out, "cluster already") {
		t.Errorf("a second cluster of the same name: %v", err)
	}
	lab, err := harness.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := control.Pid(filepath.Join(filepath.Dir(lab.Logs()), "keeper.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The kernel ends it, and all of its processes, a moment later.
	if err := harness.Poll(t.Context(), func() error {
		if _, err := harness.Open(t.Context()); err == nil {
			return errors.New("a cluster whose keeper was killed can be opened")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := harness.Poll(t.Context(), func() error {
		_, err := cluster(t, "up", "--nodes=1")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := cluster(t, "kubectl", "get", "nodes", "--no-headers"); err != nil || !strings.Contains(out, " Ready ") {
		t.Errorf("after the second start: %v", err)
	}
	if _, err := cluster(t, "down"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, name)
}

func nothingLeft(t *testing.T, name string) {
	t.Helper()
	for _, pattern := range []string{"/var/cache/outrigger-cluster-" + name, "/sys/fs/cgroup/*/outrigger-cluster-" + name} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v (%v)", left, err)
		}
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		words, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline")) // gone: not left behind
		if strings.Contains(string(words), "outrigger-cluster-"+name) {
			t.Errorf("process %s is left behind: %q", p.Name(), words)
		}
	}
}
