//go:build cluster

package pid1_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness/pid1"
)

// TestMain runs the test binary as the program that Command starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == pid1.Argument {
		code, err := pid1.Main(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}
	if len(os.Args) > 1 && lives[os.Args[1]] != nil {
		lives[os.Args[1]]()
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// lives are the programs of the first process's child in these tests. A program that succeeds
// returns, and the process exits with 3.
var lives = map[string]func(){
	// Looks whether /proc is that of the namespace: its first process is this
	// program.
	"look": func() {
		first, err := os.Readlink("/proc/1/exe")
		self, _ := os.Readlink("/proc/self/exe") // is there if the other is
		if err != nil || first != self {
			os.Exit(9)
		}
	},
	// Leaves an orphan and waits until a process has collected it.
	"orphan": func() {
		out, err := exec.Command("/bin/sh", "-c", "sleep 0.01 >/dev/null & echo $!").Output()
		if err != nil {
			os.Exit(9)
		}
		for exists("/proc/" + strings.TrimSpace(string(out))) {
			time.Sleep(time.Millisecond)
		}
	},
	// Starts a daemon that hears nothing but SIGKILL and holds the pipe that
	// was passed on; says that it did, and waits.
	"daemon": func() {
		daemon := exec.Command("/bin/sh", "-c", "trap '' TERM HUP INT; echo ready >&3; while :; do sleep 1; done")
		daemon.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
		daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := daemon.Start(); err != nil {
			os.Exit(9)
		}
		time.Sleep(time.Hour) // select {} is a deadlock for the runtime, as nothing else can wake this program
	},
	// Looks whether programs started from here hear SIGTERM. What is ignored
	// stays so in every program, down to the containers.
	"signals": func() {
		out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
		var ignored uint64
		if _, bad := fmt.Sscanf(string(out), "SigIgn: %x", &ignored); err != nil || bad != nil || ignored&(1<<(unix.SIGTERM-1)) != 0 {
			os.Exit(9)
		}
	},
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// start starts a life and returns its first process and the end of the pipe
// whose other end only its processes have.
func start(t *testing.T, life string) (*exec.Cmd, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := pid1.Command(life)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start in new namespaces (this needs root): %v", err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		_ = r.Close()
	})
	return cmd, r
}

func TestChildsExitCode(t *testing.T) {
	for _, life := range []string{"look", "orphan", "signals"} {
		cmd, _ := start(t, life)
		_ = cmd.Wait() // says that the code is not 0, which it must not be
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("%s ended with %d, want 3", life, code)
		}
	}
}

// All processes of the namespace end with the first one.
func TestEverythingEndsWithTheFirstProcess(t *testing.T) {
	cmd, pipe := start(t, "daemon")
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(pipe, ready); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	// The pipe ends only when every process that holds it has ended.
	if rest, err := io.ReadAll(pipe); err != nil || len(rest) > 0 {
		t.Errorf("after the end the pipe says %q (%v)", rest, err)
	}
}
