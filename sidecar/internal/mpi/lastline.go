package mpi

import (
	"bytes"
	"os"
	"strings"
	"time"
)

// lastLine forwards what a program prints, and keeps its last line that is not empty.
type lastLine struct {
	done chan struct{} // closed when the program, and the processes that it has started, have closed the pipe
	text []byte        // incomplete line, owned by pass until done is closed
	last []byte        // last complete line
}

// lineMax bounds the bytes that are kept of a line.
const lineMax = 512

// lastWait bounds the wait for the last line of a program that has ended: a process that it
// has started may still have its standard error open.
const lastWait = time.Second

// open returns the file for the program's standard error.
func (l *lastLine) open() (*os.File, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l.done = make(chan struct{})
	go l.forward(out)
	return in, nil
}

func (l *lastLine) forward(out *os.File) {
	defer close(l.done)
	defer func() { _ = out.Close() }() // it was only read
	b := make([]byte, 4<<10)
	for {
		n, err := out.Read(b)
		_, _ = os.Stderr.Write(b[:n]) // as without a lastLine
		for text := b[:n]; len(text) > 0; {
			line, rest, ended := bytes.Cut(text, []byte{'\n'})
			l.text = append(l.text, line[:min(len(line), lineMax-len(l.text))]...)
			if ended && len(bytes.TrimSpace(l.text)) > 0 {
				l.last = append(l.last[:0], l.text...)
			}
			if ended {
				l.text = l.text[:0]
			}
			text = rest
		}
		if err != nil {
			return
		}
	}
}

// wait returns the last line, or an empty text if none was printed or the end does not come
// in time.
func (l *lastLine) wait() string {
	if l.done == nil {
		return ""
	}
	select {
	case <-l.done:
	case <-time.After(lastWait):
		return ""
	}
	line := l.text
	if len(bytes.TrimSpace(line)) == 0 {
		line = l.last
	}
	return strings.TrimSpace(printable(string(line)))
}
