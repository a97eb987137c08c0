package jobrun

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }
func (full) Close() error              { return nil }

// TestFullDirectoryIsNoFailure checks that a full job directory is a warning, with an exit
// code of its own, if the ranks have ended with code 0.
func TestFullDirectoryIsNoFailure(t *testing.T) {
	s := set(t, `while [ $# -gt 0 ]; do [ "$1" = --termination-log ] && : >"$2"; shift; done; `+quietSidecar, quietLauncher)
	dir := filepath.Join(t.TempDir(), "job")
	err := s.run(t.Context(), &Spec{Dir: dir}, nil)
	var f *Failure
	if !errors.As(err, &f) || !f.Done || f.Code != CodeUnwritten || f.Text != "the job's directory lacks files of pod 0: "+dir+"/pod0/sidecar.words is empty: its sidecar could not write to it; make room, or give --dir another directory" {
		t.Errorf("%v", err)
	}
}

// TestFullTraceIsNoFailure checks the same for the file of the trace.
func TestFullTraceIsNoFailure(t *testing.T) {
	s := set(t, quietSidecar, quietLauncher)
	err := s.run(t.Context(), &Spec{Trace: "/dev/full"}, nil)
	var f *Failure
	if !errors.As(err, &f) || !f.Done || f.Code != CodeUnwritten || !strings.HasPrefix(f.Text, "the trace is not written: write /dev/full: no space left on device; ") {
		t.Errorf("%v", err)
	}
}

// TestLostLog checks that the loss of a sidecar's log for lack of space is reported and
// does not end the job.
func TestLostLog(t *testing.T) {
	s := &sidecarLog{person: &tailWriter{w: new(pieces)}, file: full{}}
	s.lineWriter = &lineWriter{w: writerFunc(s.lines)}
	if n, err := s.Write([]byte("a line\n")); n != 7 || err != nil {
		t.Error(n, err)
	}
	s.close()
	j := &Job{layout: &layout{}, logs: []*sidecarLog{s}}
	if err := j.logErr(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "lacks files of pod 0") {
		t.Error(err)
	}
}
