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

// running lists the processes whose arguments contain text, by number.
func running(t *testing.T, text string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(text)) { // else it has ended
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				list = append(list, pid)
			}
		}
	}
	return list
}

// TestKilledLauncherLeavesNothing: what its ranks have started ends with the job, whose
// cause is the launcher's end.
func TestKilledLauncherLeavesNothing(t *testing.T) {
	for i := range 6 {
		mark := fmt.Sprintf("300.%d%d", os.Getpid(), i)
		cmd := program(t, "run", "-n", "2", "--pods", "2", "--", "sh", "-c", "sleep "+mark+"; setsid sleep "+mark+" & true")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Of each pod the launcher, its shell and the inner process; and the program.
		for end := time.Now().Add(hung); len(running(t, mark)) < 7; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the ranks have not started: %v", running(t, mark))
			}
		}
		launcher := 0
		for _, pid := range running(t, mark) {
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // "": it has ended
			if filepath.Base(exe) == "outrigger-launch" {
				launcher = pid
			}
		}
		if err := unix.Kill(launcher, unix.SIGKILL); err != nil {
			t.Fatalf("launcher %d: %v", launcher, err)
		}
		_ = cmd.Wait() // its exit code is looked at
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "ended: killed by SIGKILL\n") || !strings.Contains(said.String(), "the launcher of pod ") {
			t.Errorf("exit code %d\n%s", code, said.String())
		}
		if left := running(t, mark); len(left) > 0 {
			t.Errorf("left behind: %v", left)
			for _, pid := range left {
				_ = unix.Kill(pid, unix.SIGKILL) // of this test
			}
		}
	}
}
