package jobrun

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// TestIsStopped checks that a process is stopped between SIGSTOP and SIGCONT, and that the
// check does not consume its exit status.
func TestIsStopped(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if isStopped(pid) {
		t.Error("a process that waits for its input is stopped")
	}
	for _, c := range []struct {
		signal unix.Signal
		want   bool
	}{{unix.SIGSTOP, true}, {unix.SIGCONT, false}, {unix.SIGSTOP, true}, {unix.SIGCONT, false}} {
		if err := unix.Kill(pid, c.signal); err != nil {
			t.Fatal(err)
		}
		for isStopped(pid) != c.want { // loops for ever if the change is not noticed
			time.Sleep(time.Millisecond)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if isStopped(pid) {
		t.Error("a process that has ended is stopped")
	}
}

// TestStoppedSidecar checks that a stopped sidecar is the job's failure, and is killed at
// the job's end, whatever the other processes do.
func TestStoppedSidecar(t *testing.T) {
	s := set(t, `test $pod = 1 && kill -STOP $$; `+quietSidecar, `trap 'exit 1' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "sidecar of pod 1 (rank 1) is lost: its process", 1)
}

// TestSidecarLog checks that a person sees errors, and lines that are not part of a log;
// other lines only if a log is requested.
func TestSidecarLog(t *testing.T) {
	const text = "time=x level=WARN msg=\"job failed\"\ntime=x level=ERROR msg=full\npanic: level\n"
	for all, want := range map[bool]string{true: text, false: "time=x level=ERROR msg=full\npanic: level\n"} {
		var shown, kept buffer
		l := &sidecarLog{person: &tailWriter{w: &shown}, file: &kept, all: all}
		l.lineWriter = &lineWriter{w: writerFunc(l.lines)}
		for i := range text { // byte by byte
			_, _ = l.Write([]byte(text[i : i+1])) // never fails
		}
		l.close()
		if shown.String() != want || kept.String() != text {
			t.Errorf("all %v: shown %q, kept %q", all, &shown, &kept)
		}
		if last := l.person.last(); last != "panic: level" {
			t.Errorf("the last line is %q", last)
		}
	}
}

// TestNoRDMAIsTold checks that a person who has requested RDMA is told once that there is
// none.
func TestNoRDMAIsTold(t *testing.T) {
	const other, line = "time=x level=WARN msg=other\n", "time=x level=WARN msg=\"" + podlife.TextNoRDMA + "\" cause=none\n"
	for asked, want := range map[bool]string{true: line, false: ""} {
		var shown buffer
		l := &sidecarLog{person: &tailWriter{w: &shown}, noRDMA: asked}
		l.lines([]byte(other + line))
		if shown.String() != want || l.person.last() != "" {
			t.Errorf("asked for: %v: shown %q, last words %q", asked, &shown, l.person.last())
		}
	}
}

// buffer is a file in memory.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }
