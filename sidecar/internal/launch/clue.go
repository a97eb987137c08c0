package launch

import (
	"bytes"
	"sync"
	"time"
)

// Clue searches a rank's standard error for the reason of the rank's end.
type Clue interface {
	Line(line []byte) // without the newline, at most clueLine bytes
	String() string   // the reason; empty if none was found
}

// Bounds of a Clue.
const (
	clueLine = 1 << 10                // bytes of a line that are read; the rest of the line is ignored
	clueTime = 200 * time.Millisecond // wait for the rest of the output after a rank has ended: a process that it started may still hold the pipe open
)

// clued passes the lines of one stream, and of texts that are printed by process
// management, to a Clue.
type clued struct {
	mu   sync.Mutex // guards clue
	clue Clue
	line []byte
	done chan struct{} // closed at the end of the stream
}

// add passes a complete line to the Clue.
func (c *clued) add(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clue.Line(line[:min(len(line), clueLine)])
}

// Write accepts all bytes. Only one goroutine writes the stream.
func (c *clued) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		c.line = append(c.line, line[:min(len(line), clueLine-len(c.line))]...)
		if !ended {
			return n, nil
		}
		c.add(c.line)
		c.line, b = c.line[:0], rest
	}
}

func (c *clued) end() {
	c.add(c.line)
	close(c.done)
}

// text returns the result of the search when the stream has ended, or after clueTime.
func (c *clued) text() string {
	if c == nil {
		return ""
	}
	select {
	case <-c.done:
	case <-time.After(clueTime):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clue.String()
}

// newClue returns the clue of a rank that has started, or nil if none is configured.
func (p *pod) newClue(rank int) *clued {
	if p.cfg.Clue == nil {
		return nil
	}
	c := &clued{clue: p.cfg.Clue(), done: make(chan struct{})}
	p.mu.Lock()
	p.clues[rank] = c
	p.mu.Unlock()
	return c
}

func (p *pod) clue(rank int) *clued {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clues[rank]
}
