package podlife

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Log is the file of a termination message. It is written when something fails
// and again at the end: a process that is killed in between leaves what it knew.
// The zero Log, and one without a path, keeps nothing.
type Log struct {
	Path string

	mu      sync.Mutex
	written int // bytes in the file
}

// Write replaces the message in the file. It is one write to one page, padded
// with spaces to the length of what was there: whoever reads, and whenever this
// process is killed, there is a whole message. The kubelet mounts the file, so
// that it cannot be replaced by another one.
func (l *Log) Write(m *Message) error {
	if l.Path == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	raw := m.Encode()
	if n := l.written - len(raw); n > 0 {
		raw = append(raw, bytes.Repeat([]byte{' '}, n)...)
	}
	flags := os.O_WRONLY | os.O_CREATE
	if l.written == 0 {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(l.Path, flags, 0o644) //nolint:gosec // the other containers of the pod may read it
	if err != nil {
		return fmt.Errorf("termination message: %w", err)
	}
	_, err = f.WriteAt(raw, 0)
	if err == nil {
		l.written = len(raw)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("termination message: %w", err)
	}
	return nil
}
