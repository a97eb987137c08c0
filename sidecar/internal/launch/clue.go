package launch

import (
	"bytes"
	"sync"
	"time"
)

// Clue finds in a rank's standard error why the rank has ended.
type Clue interface {
	Line(line []byte) // without its end, and not longer than clueLine
	String() string   // empty: nothing was found
}

// Bounds of a Clue.
const (
	clueLine = 1 << 10                // bytes of a line: what follows is not looked at
	clueTime = 200 * time.Millisecond // for the rest of the output of a rank that has ended; a process that it has left may have the pipe
)

// clued gives the lines of one stream, and those of texts, to a Clue.
type clued struct {
	mu   sync.Mutex // guards clue
	clue Clue
	line []byte
	done chan struct{} // closed at the end of the stream
}

// add takes a line that is whole, of the stream or of a text.
func (c *clued) add(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clue.Line(line[:min(len(line), clueLine)])
}

// Write takes all. The stream is one goroutine's.
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

// text is what was found when the stream has ended; empty: nothing, or not in time.
func (c *clued) text() string {
	if c == nil {
		return ""
	}
	select {
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.clue.String()
	case <-time.After(clueTime):
		return ""
	}
}

// newClue begins to look for a clue of a rank that has started; nil: none is looked for.
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
