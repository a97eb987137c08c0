package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// running returns the ids of the processes whose arguments contain text.
func running(t *testing.T, text string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(text)) { // an error means that the process has ended
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				list = append(list, pid)
			}
		}
	}
	return list
}

// TestKilledLauncherLeavesNothing: if a launcher is killed, the job fails because of that,
// and the processes that its ranks have started end with it.
func TestKilledLauncherLeavesNothing(t *testing.T) {
	for i := range 6 {
		mark := fmt.Sprintf("300.%d%d", os.Getpid(), i)
		cmd := program(t, "run", "-n", "2", "--pods", "2", "--", "sh", "-c", "sleep "+mark+"; setsid sleep "+mark+" & true")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// In each pod: the launcher, its shell and the inner process; and outrigger itself.
		for end := time.Now().Add(hung); len(running(t, mark)) < 7; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the ranks have not started: %v", running(t, mark))
			}
		}
		launcher := 0
		for _, pid := range running(t, mark) {
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // "": the process has ended
			if filepath.Base(exe) == "outrigger-launch" {
				launcher = pid
			}
		}
		if err := unix.Kill(launcher, unix.SIGKILL); err != nil {
			t.Fatalf("launcher %d: %v", launcher, err)
		}
		_ = cmd.Wait() // the exit code is checked below
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "ended: killed by SIGKILL\n") || !strings.Contains(stderr.String(), "the launcher of pod ") {
			t.Errorf("exit code %d\n%s", code, stderr.String())
		}
		if left := running(t, mark); len(left) > 0 {
			t.Errorf("left behind: %v", left)
			for _, pid := range left {
				_ = unix.Kill(pid, unix.SIGKILL) // of this test
			}
		}
	}
}
