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

// sidecarLog receives what a sidecar writes. All of it is written to a file in the job's
// directory, if that is kept. A person who has not requested a log sees errors only: the
// cause of a failure is printed once, at the job's end, and not by every sidecar. A sidecar
// does not wait for readers: its peers would declare it dead.
type sidecarLog struct {
	*lineWriter
	person *tailWriter    // what the person sees
	file   io.WriteCloser // nil: no file is kept
	all    bool           // a person has requested a log
	noRDMA bool           // a person has requested RDMA, and is told here if there is none

	mu   sync.Mutex
	lost error // why a file of the pod is missing in the job's directory
}

// lose records the first error of a file of the pod.
func (s *sidecarLog) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
	}
}

// logErr returns why files are missing in the job's directory, or nil. The sidecars must
// have ended.
func (j *Job) logErr() error {
	for pod, s := range j.logs {
		s.mu.Lock()
		err := s.lost
		s.mu.Unlock()
		if err == nil && j.layout.keep {
			err = missingMessage(j.layout.words(pod))
		}
		if err != nil { // files of the other pods are missing for the same reason
			return fmt.Errorf("the job's directory lacks files of pod %d: %w; make room, or give --dir another directory", pod, err)
		}
	}
	return nil
}

// missingMessage returns an error if the file for a sidecar's final message is empty
// although the sidecar has ended in order.
func missingMessage(path string) error {
	if st, err := os.Stat(path); err != nil || st.Size() > 0 {
		return nil // it ended before it made the file, or it has written
	}
	return fmt.Errorf("%s is empty: its sidecar could not write to it", path)
}

// openLog opens the log of a pod's sidecar.
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

// level returns the log level of the sidecar.
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

// lines handles whole lines.
func (s *sidecarLog) lines(b []byte) {
	if s.file != nil {
		if _, err := s.file.Write(b); err != nil {
			s.lose(err) // a full disk must not end the job
		}
	}
	if s.all {
		_, _ = s.person.Write(b) // an error has no recipient
		return
	}
	for line := range bytes.Lines(b) {
		switch {
		case !chatter(line):
			_, _ = s.person.Write(line) // see above
		case s.noRDMA && bytes.Contains(line, []byte(podlife.TextNoRDMA)):
			_, _ = s.person.w.Write(line) // as above; the line is not a cause of the sidecar's end, so that person does not keep it
		}
	}
}

// chatter reports whether a line of a log is below the level of errors. A line that is not
// part of a log, such as one of Go's runtime, is not.
func chatter(line []byte) bool {
	for _, level := range []string{" level=DEBUG ", " level=INFO ", " level=WARN "} {
		if bytes.Contains(line, []byte(level)) {
			return true
		}
	}
	return false
}

// close handles the rest when the process has ended.
func (s *sidecarLog) close() {
	s.flush()
	if s.file != nil {
		if err := s.file.Close(); err != nil {
			s.lose(err)
		}
	}
}

// writerFunc is a Writer that accepts all bytes.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
