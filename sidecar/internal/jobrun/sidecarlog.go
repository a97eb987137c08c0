package jobrun

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
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
	noRDMA bool           // a person has asked for RDMA, and is told here if there is none

	mu   sync.Mutex
	lost error // why something of the pod is not in the job's directory
}

// lose notes the first file of the pod that could not be written.
func (s *sidecarLog) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
	}
}

// logErr is why the job's directory lacks something; nil: it lacks nothing. The sidecars
// have ended.
func (j *Job) logErr() error {
	for pod, s := range j.logs {
		s.mu.Lock()
		err := s.lost
		s.mu.Unlock()
		if err == nil && j.layout.keep {
			err = wordless(j.layout.words(pod))
		}
		if err != nil { // the others lack it for the same reason
			return fmt.Errorf("the job's directory lacks files of pod %d: %w; make room, or give --dir another directory", pod, err)
		}
	}
	return nil
}

// wordless is the error of a file for a sidecar's last words that has none, though the
// sidecar has ended in order.
func wordless(path string) error {
	if st, err := os.Stat(path); err != nil || st.Size() > 0 {
		return nil // it was ended before it made the file, or has written
	}
	return fmt.Errorf("%s is empty: its sidecar could not write to it", path)
}

// openLog makes the log of a pod's sidecar.
func (j *Job) openLog(pod int) (*sidecarLog, error) {
	s := &sidecarLog{person: &tailWriter{w: j.err.NonBlocking()}, all: j.spec.LogLevel != "", noRDMA: pod == 0 && j.spec.Tuning.Transport == bootstrap.TransportRDMA}
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
	case s.noRDMA:
		return "warn"
	}
	return "error"
}

// lines takes whole lines.
func (s *sidecarLog) lines(b []byte) {
	if s.file != nil {
		if _, err := s.file.Write(b); err != nil {
			s.lose(err) // a full disk must not end the job
		}
	}
	if s.all {
		_, _ = s.person.Write(b) // nobody may read our output any more
		return
	}
	for line := range bytes.Lines(b) {
		switch {
		case !chatter(line):
			_, _ = s.person.Write(line) // see above
		case s.noRDMA && bytes.Contains(line, []byte(podlife.TextNoRDMA)):
			_, _ = s.person.w.Write(line) // the same; it is no reason for which a sidecar may end
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
		if err := s.file.Close(); err != nil {
			s.lose(err)
		}
	}
}

// writerFunc is a function that takes all it gets.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
