package jobrun

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// sidecarLog takes what a sidecar writes. All of it goes to a file in the job's
// directory, if that is kept. A person who has not asked for a log sees errors
// only: why a job failed is said once, at its end, and not by every sidecar. A
// sidecar waits for no reader: its peers would take it for dead.
type sidecarLog struct {
	*lineWriter
	person *tailWriter
	file   io.WriteCloser // nil: none is kept
	all    bool           // a person has asked for a log
}

// openLog makes the log of a pod's sidecar.
func (j *Job) openLog(pod int) (*sidecarLog, error) {
	s := &sidecarLog{person: &tailWriter{w: j.err.Unwaited()}, all: j.spec.LogLevel != ""}
	s.lineWriter = &lineWriter{w: writerFunc(s.lines)}
	if !j.layout.keep {
		return s, nil
	}
	f, err := os.Create(j.layout.file("pod%d/sidecar.log", pod))
	if err != nil {
		return nil, fmt.Errorf("log of the sidecar of pod %d: %w", pod, err)
	}
	s.file = f
	return s, nil
}

// level is what the sidecar is to write.
func (s *sidecarLog) level(asked string) string {
	switch {
	case asked != "":
		return asked
	case s.file != nil:
		return "info"
	}
	return "error"
}

// lines takes whole lines.
func (s *sidecarLog) lines(b []byte) {
	if s.file != nil {
		_, _ = s.file.Write(b) // a full disk must not end the job
	}
	if s.all {
		_, _ = s.person.Write(b) // nobody may read our output any more
		return
	}
	for line := range bytes.Lines(b) {
		if !chatter(line) {
			_, _ = s.person.Write(line) // see above
		}
	}
}

// chatter reports a line of a log that is no error. What is no log at all, such
// as the runtime's last words, is none either.
func chatter(line []byte) bool {
	for _, level := range []string{" level=DEBUG ", " level=INFO ", " level=WARN "} {
		if bytes.Contains(line, []byte(level)) {
			return true
		}
	}
	return false
}

// close takes what is left when the process has ended.
func (s *sidecarLog) close() {
	s.flush()
	if s.file != nil {
		_ = s.file.Close() // what could not be written was not
	}
}

// writerFunc is a function that takes all it gets.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
