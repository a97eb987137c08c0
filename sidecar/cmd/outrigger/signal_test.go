package main

import (
	"bufio"
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// signalled starts a job of two ranks in two pods, sends signals to outrigger when both
// ranks have printed "ready", and returns the job's output and its exit code.
func signalled(t *testing.T, script string, signals ...os.Signal) (lines []string, errOut string, code int) {
	t.Helper()
	cmd := program(t, "run", "-n", "2", "--pods", "2", "--", "sh", "-c", script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := 0
	in := bufio.NewScanner(out)
	for in.Scan() {
		if strings.HasSuffix(in.Text(), "ready") {
			if ready++; ready == 2 {
				for _, s := range signals {
					if err := cmd.Process.Signal(s); err != nil {
						t.Error(err)
					}
				}
			}
			continue
		}
		if strings.HasSuffix(in.Text(), "checkpoint") && strings.Count(strings.Join(lines, " "), "checkpoint") == 1 {
			_ = cmd.Process.Signal(unix.SIGUSR2) // the ranks print "end"
		}
		lines = append(lines, in.Text())
	}
	_ = cmd.Wait() // the exit code is returned
	slices.Sort(lines)
	return lines, stderr.String(), cmd.ProcessState.ExitCode()
}

// TestUserSignalsReachRanks: each rank gets the signal once, and the processes that it has
// started do not.
func TestUserSignalsReachRanks(t *testing.T) {
	const script = `trap 'echo checkpoint' USR1; trap 'echo end; kill $helper; exit 0' USR2
		sh -c 'trap "echo HELPER" USR1 USR2; while :; do sleep 0.01; done' & helper=$!
		echo ready; while :; do sleep 0.01; done`
	lines, stderr, code := signalled(t, script, unix.SIGUSR1)
	if got := strings.Join(lines, " "); code != 0 || got != "[0] checkpoint [0] end [1] checkpoint [1] end" {
		t.Errorf("exit code %d, %q\n%s", code, got, stderr)
	}
}

// TestQuitEndsTheJob: SIGQUIT ends the job as Ctrl-C does.
func TestQuitEndsTheJob(t *testing.T) {
	lines, stderr, code := signalled(t, `echo ready; while :; do sleep 0.01; done`, unix.SIGQUIT)
	if want := "outrigger: job failed: ended by SIGQUIT\n"; code != 128+int(unix.SIGQUIT) || stderr != want || lines != nil {
		t.Errorf("exit code %d, %q, want %q; %q", code, stderr, want, lines)
	}
}
