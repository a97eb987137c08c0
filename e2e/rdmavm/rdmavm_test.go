//go:build rdmavm

package rdmavm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/job"
)

// TestMachine: a machine starts, its device works and is found by the node's agent, and a failure
// inside of the machine is reported outside.
func TestMachine(t *testing.T) {
	agent := filepath.Join(t.TempDir(), "outrigger-devplugin")
	if err := Compile(agent, "../../devplugin/cmd/outrigger-devplugin"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command []string
		status  int
		output  string
	}{
		"device":    {[]string{"ibv_devinfo", "-v"}, 0, "PORT_ACTIVE"},
		"inventory": {[]string{"outrigger-devplugin", "inventory"}, 0, job.Device},
		"fails":     {[]string{"ip", "link", "show", "nothing"}, 1, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Do(t.Context(), Run{Name: name, Programs: []string{agent}, Commands: [][]string{c.command}, Limit: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Status != c.status || !strings.Contains(got[0].Output, c.output) {
				t.Errorf("status %d (%s), output:\n%s", got[0].Status, got[0].Cause, got[0].Output)
			}
		})
	}
}

// TestLink: the verbs link passes the common test suite of links over Soft-RoCE, in one machine.
func TestLink(t *testing.T) { inside(t, "link", "^Test(Device|Port|NotGranted)$") }

// TestCost compares the link with perftest in one machine, without sidecars.
func TestCost(t *testing.T) { inside(t, "cost", "^TestCost$") }

// TestGatherCost measures over Soft-RoCE the parts of the cost of a copy, and of a send without a
// copy whose completion is reported, in a machine whose clock counts instructions.
func TestGatherCost(t *testing.T) { insideOf(t, "gather-cost", "^TestGatherCost$", true) }

// TestTCPGatherCost is like TestGatherCost for tcp, which needs no device. It counts the
// instructions of two links and the kernel for a message that is copied, for one that is not,
// and for one whose completion is reported to the sender.
func TestTCPGatherCost(t *testing.T) {
	test := filepath.Join(t.TempDir(), "tcp.test")
	if err := Compile(test, "../../sidecar/internal/link/tcp"); err != nil {
		t.Fatal(err)
	}
	command := []string{"tcp.test", "-test.run", "^$", "-test.bench", "Gather", "-test.benchtime", "200x", "-tcp.arena", "64"}
	out := passes(t, Run{Name: "tcp-gather-cost", Programs: []string{test}, Commands: [][]string{command}, Limit: 5 * time.Minute, Counted: true})
	if n := strings.Count(out[0].Output, "gathered-told-ns"); n != 4 {
		t.Errorf("%d sizes are measured, want 4", n)
	}
}

// inside runs tests of the link in a machine.
func inside(t *testing.T, name, run string) {
	t.Helper()
	insideOf(t, name, run, false)
}

func insideOf(t *testing.T, name, run string, counted bool) {
	t.Helper()
	insideLike(t, Run{Name: name, Counted: counted}, run)
}

// insideLike runs tests of the link in a machine with the settings of a run.
func insideLike(t *testing.T, r Run, run string, flags ...string) []Outcome {
	t.Helper()
	test := filepath.Join(t.TempDir(), "verbs.test")
	if err := Compile(test, "../../sidecar/internal/link/verbs", "rdma", "rdmaguest"); err != nil {
		t.Fatal(err)
	}
	const limit = 5 * time.Minute
	line := append([]string{"verbs.test", "-test.v", "-test.run", run, "-test.timeout", limit.String()}, flags...)
	r.Programs, r.Commands, r.Limit = []string{test}, [][]string{line}, limit
	return passes(t, r)
}

// passes runs machines; every command must succeed.
func passes(t *testing.T, r Run) []Outcome {
	t.Helper()
	got, err := Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range got {
		t.Logf("machine %d, %s:\n%s", i, o.Dir, o.Output)
		if o.Status != 0 {
			t.Errorf("machine %d: status %d: %s", i, o.Status, o.Cause)
		}
	}
	return got
}
