package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/e2e/harness/daemon"
)

// shell returns a daemon that runs a line of sh.
func shell(name, line string) daemon.Command {
	return daemon.Command{Name: name, Args: []string{"/bin/sh", "-c", line}, Env: []string{"WORD=hello"}}
}

// logged waits until a program's log has a line.
func logged(t *testing.T, set *daemon.Set, name, line string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(set.Log(name))
		if err == nil && strings.Contains(string(text), line+"\n") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log of %s is %q (%v), without %q", name, text, err, line)
		}
	}
}

func TestStartAndStop(t *testing.T) {
	set := daemon.NewSet(t.TempDir())
	waiting := "trap 'echo ended; exit 0' TERM; echo $WORD; while :; do sleep 0.01; done"
	if err := set.Start(shell("one", waiting)); err != nil {
		t.Fatal(err)
	}
	logged(t, set, "one", "hello")
	if diff := cmp.Diff([]string{"one"}, set.Running()); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
	if err := set.Alive("one"); err != nil {
		t.Error(err)
	}
	if err := set.Start(shell("one", waiting)); err == nil {
		t.Error("a program that runs was started again")
	}
	set.Stop("one")
	logged(t, set, "one", "ended")
	if got := set.Running(); len(got) != 0 {
		t.Errorf("still running: %v", got)
	}
	set.Stop("one") // once more is no mistake

	// If the program is started again, its log is appended to.
	if err := set.Start(shell("one", "echo again")); err != nil {
		t.Fatal(err)
	}
	logged(t, set, "one", "again")
	logged(t, set, "one", "hello")
}

// A program that ignores SIGTERM is killed.
func TestStubborn(t *testing.T) {
	set := daemon.NewSet(t.TempDir())
	if err := set.Start(shell("deaf", "trap '' TERM; echo deaf; while :; do sleep 0.01; done")); err != nil {
		t.Fatal(err)
	}
	logged(t, set, "deaf", "deaf")
	set.Stop("deaf")
	if got := set.Running(); len(got) != 0 {
		t.Errorf("still running: %v", got)
	}
}

// A program with Restart is started again when it ends, until it is stopped.
func TestRestart(t *testing.T) {
	set := daemon.NewSet(t.TempDir())
	mark := filepath.Join(t.TempDir(), "mark")
	again := shell("again", "if [ -e "+mark+" ]; then echo back; sleep 1000; fi; touch "+mark+"; exit 1")
	again.Restart = true
	if err := set.Start(again); err != nil {
		t.Fatal(err)
	}
	logged(t, set, "again", "back")
	if err := set.Alive("again"); err != nil {
		t.Error(err)
	}
	set.Stop("again")
	if got := set.Running(); len(got) != 0 {
		t.Errorf("still running: %v", got)
	}
}

// The error about a program that ended by itself has its exit status and the path of its log.
func TestEnded(t *testing.T) {
	set := daemon.NewSet(t.TempDir())
	if err := set.Alive("none"); err == nil {
		t.Error("a program that was never started is alive")
	}
	if err := set.Start(shell("brief", "exit 3")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(set.Running()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not end")
		}
	}
	if err := set.Alive("brief"); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), set.Log("brief")) {
		t.Errorf("Alive says %v", err)
	}
	if err := set.Start(daemon.Command{Name: "nowhere", Args: []string{"/nowhere/at/all"}}); err == nil {
		t.Error("a program that does not exist was started")
	}
}
