package jobrun

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
)

// lineMax is the length at which the beginning of a line of a log is written before the line ends.
const lineMax = 128 << 10

// lineWriter writes whole lines of a sidecar's log. A pipe splits them in arbitrary pieces,
// between which lines of another process would be printed. Write never fails: a sidecar
// must not end because its log is not read any more.
type lineWriter struct {
	w    io.Writer
	part []byte
}

func (l *lineWriter) Write(b []byte) (int, error) {
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 && len(l.part)+len(b) < lineMax {
		l.part = append(l.part, b...)
		return len(b), nil
	}
	if end == 0 {
		end = len(b)
	}
	l.part = append(l.part, b[:end]...)
	_, _ = l.w.Write(l.part) // see above
	l.part = append(l.part[:0], b[end:]...)
	return len(b), nil
}

// flush writes the rest when the process has ended.
func (l *lineWriter) flush() {
	if len(l.part) > 0 {
		_, _ = l.w.Write(append(l.part, '\n')) // an error has no recipient
	}
	l.part = nil
}

// tailWriter passes a sidecar's log on and keeps its last line, or the first line with
// which Go's runtime reports that it ends the process: goroutines and registers follow that
// line.
type tailWriter struct {
	w     io.Writer
	mu    sync.Mutex
	b     []byte
	crash string
}

// crashes are the beginnings of the lines with which the runtime reports why it ends a
// process.
var crashes = [][]byte{[]byte("fatal error: "), []byte("panic: "), []byte("runtime: "), []byte("runtime/cgo: ")}

func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	for line := range bytes.Lines(b) {
		if t.crash == "" && slices.ContainsFunc(crashes, func(c []byte) bool { return bytes.HasPrefix(line, c) }) {
			t.crash = string(bytes.TrimSpace(line[:min(len(line), 1024)]))
		}
	}
	t.b = append(t.b[:0], bytes.TrimSpace(b)...)
	if len(t.b) > 1024 {
		t.b = t.b[len(t.b)-1024:]
	}
	t.mu.Unlock()
	return t.w.Write(b)
}

func (t *tailWriter) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.crash != "" {
		return t.crash
	}
	s := string(t.b)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
