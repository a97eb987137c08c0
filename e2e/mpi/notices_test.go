//go:build mpi

package mpi

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNotices checks that SIGUSR1 of `outrigger run` reaches each rank that the program's own mpirun
// has started, exactly once, and so does SIGUSR2, which MPICH's and Intel MPI's mpirun do not pass
// on, and that the job continues and succeeds. A script that calls mpirun gets the signal itself,
// and may pass it on.
func TestNotices(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := []string{m.starter(t), "-n", "4", m.build(t, "notices")}
			if m.name == "mpich" || m.name == "intel" {
				notices(t, 0, m.env, program...)
				return
			}
			notices(t, 1, m.env, append(program, "both")...)
			if m.name == "openmpi4" {
				const script = `trap 'kill -USR1 $!' USR1; "$0" "$@" & wait; wait $!`
				notices(t, 0, append(m.env, "OUTRIGGER_MPIRUN=1"), append([]string{"sh", "-c", script}, program...)...)
			}
		})
	}
}

// notices runs a program of four ranks in two pods, sends SIGUSR1 when all run, and SIGUSR2 when all
// have got the first and wait for the second, and checks how often each rank got each.
func notices(t *testing.T, second int, env []string, program ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), jobTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, at(t, "outrigger"), append([]string{"run", "-n", "4", "--pods", "2", "--mpi", "auto", "--"}, program...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := new(strings.Builder)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(text, lines.Text())
		for ends, signal := range map[string]unix.Signal{" runs": unix.SIGUSR1, " has SIGUSR1": unix.SIGUSR2} {
			if strings.HasSuffix(lines.Text(), ends) && strings.Count(text.String(), ends+"\n") == 4 {
				if err := cmd.Process.Signal(signal); err != nil {
					t.Error(err)
				}
			}
		}
	}
	err = cmd.Wait()
	if n := strings.Count(text.String(), fmt.Sprintf("got SIGUSR1 1 times, SIGUSR2 %d times", second)); err != nil || n != 4 {
		t.Errorf("%v: %v, %d of 4 ranks got each signal as often as it was sent\n%s", program, err, n, text)
	}
}
