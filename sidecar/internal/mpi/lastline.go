package mpi

import (
	"bytes"
	"os"
	"strings"
	"time"
)

// lastLine passes on what a program prints, and keeps the last line of it that is not empty.
type lastLine struct {
	done chan struct{} // closed when the program, and what it has started, print no more
	text []byte        // of the line so far, owned by pass until done is closed
	last []byte        // whole line before
}

// lineMax bounds what is kept of a line, in bytes.
const lineMax = 512

// lastWait bounds how long the last line of a program that has ended is waited for: what it
// has started may have its standard error still.
const lastWait = time.Second

// begin returns where the program prints.
func (l *lastLine) begin() (*os.File, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l.done = make(chan struct{})
	go l.pass(out)
	return in, nil
}

func (l *lastLine) pass(out *os.File) {
	defer close(l.done)
	defer func() { _ = out.Close() }() // only read
	b := make([]byte, 4<<10)
	for {
		n, err := out.Read(b)
		_, _ = os.Stderr.Write(b[:n]) // as without this
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

// wait returns the last line; empty: none was printed, or the end has not come in time.
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
