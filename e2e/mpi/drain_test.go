//go:build mpi

package mpi

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// drains runs a program of four ranks in two pods that writes a checkpoint on SIGTERM, interrupts it
// when all ranks run, and checks that each rank has written its checkpoint.
func drains(t *testing.T, env []string, program ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), at(t, "outrigger"), append([]string{"run", "-n", "4", "--pods", "2", "--mpi", "auto", "--"}, program...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running, written, text := 0, 0, new(strings.Builder)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(text, lines.Text())
		switch line := lines.Text(); {
		case strings.Contains(line, "signal 15, checkpoint written"):
			written++
		case strings.HasSuffix(line, " runs"):
			if running++; running == 4 {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 || written != 4 {
		t.Errorf("%v, %d of 4 ranks have written their checkpoint\n%s", err, written, text)
	}
}

// TestDrain checks that ranks of a job that is ended have time to agree on a checkpoint by messages
// and write it, also if the program's mpirun, or a script that runs mpirun, has started them.
func TestDrain(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "term")
			drains(t, m.env, program, "3")
			drains(t, m.env, m.starter(t), "-n", "4", program, "3")
			drains(t, append(m.env, "OUTRIGGER_MPIRUN=1"), "sh", "-c", m.starter(t)+" -n 4 "+program+" 3; echo the script goes on")
		})
	}
}
