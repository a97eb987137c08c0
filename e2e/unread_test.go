package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ranks that print without end, as for a pager, and that then end or fail.
const (
	chatty  = `trap 'exit 9' HUP; yes "a line that is not read" & echo $$ >$PIDS/$OUTRIGGER_RANK; wait`
	failing = `yes "a line that is not read" & echo $$ >$PIDS/$OUTRIGGER_RANK; [ $OUTRIGGER_RANK = 1 ] && { sleep 1; kill -KILL $$; }; wait`
	shy     = `yes "a line" | head -n 20000`
)

// TestOutputUnread: the ranks' output goes into a pipe that is not read, as with a pager that
// waits. The job ends with its exit code in each case, and with its verdict if that can be
// printed.
func TestOutputUnread(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		script  string
		flags   []string
		signal  unix.Signal
		code    int
		verdict string
	}{
		"timeout":    {chatty, []string{"--timeout", "2s"}, 0, 124, "job failed: not finished within 2s"},
		"Ctrl-C":     {chatty, nil, unix.SIGINT, 130, "job failed: interrupted"},
		"SIGTERM":    {chatty, nil, unix.SIGTERM, 143, "job failed: ended by SIGTERM"},
		"rank fails": {failing, nil, 0, 137, "rank 1 (pod 1) was killed by SIGKILL"},
	} {
		for _, errToo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stderr %v", what, errToo), func(t *testing.T) {
				t.Parallel()
				j := unread(t, errToo, c.flags, c.script)
				if c.signal != 0 {
					j.started()
					j.do(c.signal)
				}
				j.ends(c.code)
				if !errToo && !strings.Contains(j.said.String(), c.verdict) {
					t.Errorf("stderr does not say %q:\n%s", c.verdict, j.said)
				}
				if !errToo && !strings.Contains(j.said.String(), " bytes of output are dropped: no process reads them") {
					t.Errorf("stderr does not say that output is missing:\n%s", j.said)
				}
			})
		}
	}
}

// TestOutputReadLate checks that no output of a successful job is lost if it is read late.
func TestOutputReadLate(t *testing.T) {
	j := unread(t, false, nil, shy)
	j.started()
	time.AfterFunc(time.Second, func() { go func() { _, _ = io.Copy(&j.late, j.pipe); close(j.read) }() })
	j.ends(0)
	<-j.read
	if n := bytes.Count(j.late.Bytes(), []byte("a line\n")); n != 40000 {
		t.Errorf("%d lines, want 40000", n)
	}
}

// quiet is a job whose output is not read.
type quiet struct {
	t    *testing.T
	cmd  *exec.Cmd
	pipe *os.File
	said *output
	pids string
	done chan error
	late bytes.Buffer
	read chan struct{}
}

func unread(t *testing.T, errToo bool, flags []string, script string) *quiet {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	q := &quiet{t: t, pipe: r, said: new(output), pids: t.TempDir(), done: make(chan error, 1), read: make(chan struct{})}
	args := append([]string{"run", "-n", "2", "--pods", "2", "--arena", "16", "--no-prefix"}, flags...)
	q.cmd = exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), append(args, "--", "/bin/sh", "-c", script)...)
	q.cmd.Env = append(os.Environ(), "PIDS="+q.pids)
	q.cmd.Stdout, q.cmd.Stderr = w, io.Writer(q.said)
	if errToo {
		q.cmd.Stderr = w
	}
	if err := q.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the job has it
	go func() { q.done <- q.cmd.Wait() }()
	t.Cleanup(func() {
		_ = q.cmd.Process.Kill() // it has ended
		_ = r.Close()            // only read
	})
	return q
}

// started waits until the pipe is full: nothing of the job can be printed any more.
func (q *quiet) started() {
	q.t.Helper()
	for end := time.Now().Add(jobTime); ; time.Sleep(5 * time.Millisecond) {
		n, err := unix.IoctlGetInt(int(q.pipe.Fd()), unix.TIOCINQ)
		if err != nil {
			q.t.Fatal(err)
		}
		if n > 32<<10 {
			return
		}
		if time.Now().After(end) {
			q.t.Fatalf("the job prints nothing\n%s", q.said)
		}
	}
}

func (q *quiet) do(s unix.Signal) {
	q.t.Helper()
	if err := q.cmd.Process.Signal(s); err != nil {
		q.t.Fatal(err)
	}
}

// ends waits for the end of the job, and fails if a rank is left.
func (q *quiet) ends(code int) {
	q.t.Helper()
	var err error
	select {
	case err = <-q.done:
	case <-time.After(jobTime):
		q.t.Fatalf("the job has not ended\n%s", q.said)
	}
	var x *exec.ExitError
	if got := q.cmd.ProcessState.ExitCode(); got != code || err != nil && !errors.As(err, &x) {
		q.t.Errorf("exit code %d (%v), want %d\n%s", got, err, code, q.said)
	}
	files, err := os.ReadDir(q.pids)
	if err != nil {
		q.t.Fatal(err)
	}
	for _, f := range files {
		pid, err := os.ReadFile(filepath.Join(q.pids, f.Name()))
		if err != nil {
			q.t.Fatal(err)
		}
		if err := unix.Kill(-number(q.t, string(pid)), 0); !errors.Is(err, unix.ESRCH) {
			q.t.Errorf("rank %s: its processes are there still (%v)", f.Name(), err)
		}
	}
}
