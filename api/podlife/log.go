package podlife

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Log is the file of a termination message. It is written at a failure and again at the
// end, so that the message of a process that is killed in between has the failure. A
// nil Log writes nothing.
type Log struct {
	mu      sync.Mutex
	file    *os.File
	written int // bytes in the file
}

// Open opens the file at path, or makes it. An empty path is a nil Log.
func Open(path string) (*Log, error) {
	if path == "" {
		return nil, nil
	}
	return open(path, os.O_CREATE)
}

// Create makes the file at path with m in it. If the file exists already, the error wraps
// fs.ErrExist.
func Create(path string, m *Message) (*Log, error) {
	l, err := open(path, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	return l, l.Write(m)
}

func open(path string, flags int) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644) //nolint:gosec // the pod's other containers may read it
	if err != nil {
		return nil, fmt.Errorf("termination message: %w", err)
	}
	return &Log{file: f}, nil
}

// Write replaces the message in the file. It is one write to one page, padded with
// spaces to the length of the previous message, so that every reader finds a whole
// message even if this process is killed at any time. The kubelet mounts the file, so
// it cannot be replaced by another file.
func (l *Log) Write(m *Message) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == 0 {
		if err := l.file.Truncate(0); err != nil { // the message of an earlier container
			return fmt.Errorf("termination message: %w", err)
		}
	}
	raw := m.Encode()
	if n := l.written - len(raw); n > 0 {
		raw = append(raw, bytes.Repeat([]byte{' '}, n)...)
	}
	if _, err := l.file.WriteAt(raw, 0); err != nil {
		return fmt.Errorf("termination message: %w", err)
	}
	l.written = len(raw)
	return nil
}

// Close closes the file, which keeps the message.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// Read reads the message in a file. Another program may have replaced the file: nothing
// in its place makes Read block or read more than SizeMax bytes.
func Read(path string) (*Message, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("termination message: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is no file of ours", ErrInvalid, path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, SizeMax+1))
	if err != nil {
		return nil, fmt.Errorf("termination message: %w", err)
	}
	return Parse(raw)
}
