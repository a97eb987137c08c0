package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// copyOutput sends what a rank prints on, with the rank in front of each line if the pod's
// lines are marked. A clue that is not nil is looked for in it.
func (p *pod) copyOutput(rank int, r *os.File, w *outlet.Writer, c *clued) {
	s := p.stream(rank, w)
	all := []io.Writer{s, p.tail.stream(fmt.Sprintf("[%d] ", rank))}
	if c != nil {
		all = append(all, c)
		defer c.end()
	}
	_, _ = io.Copy(io.MultiWriter(all...), &source{pipe: r, silent: &p.silent}) // a Stream takes all, and what cannot be read has ended
	s.Flush()
}

// stream is what a rank prints on one of its outputs.
func (p *pod) stream(rank int, w *outlet.Writer) *outlet.Stream {
	if p.cfg.Prefix {
		return w.Stream(outlet.Marked, fmt.Sprintf("[%d] ", rank))
	}
	return w.Stream(outlet.Unmarked, "")
}

// texts are the streams of what ranks print by process management.
type texts struct {
	mu sync.Mutex // guards of, and is held for a text
	of map[int][]io.Writer
}

// say prints a text of a rank as its standard error, in whole lines.
func (p *pod) say(rank int, text string) {
	if rank < p.cfg.First || rank > p.cfg.Last {
		return // no launcher's
	}
	lines := []byte(strings.TrimSuffix(text, "\n") + "\n")
	p.texts.mu.Lock()
	defer p.texts.mu.Unlock()
	if p.texts.of == nil {
		p.texts.of = map[int][]io.Writer{}
	}
	if p.texts.of[rank] == nil {
		p.texts.of[rank] = []io.Writer{p.stream(rank, p.err), p.tail.stream(fmt.Sprintf("[%d] ", rank))}
	}
	for _, w := range p.texts.of[rank] {
		_, _ = w.Write(lines) // both take all
	}
	if c := p.clue(rank); c != nil {
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			c.add(line)
		}
	}
}

// source is the end of a rank's pipe that is read. When nobody is left who could
// write to it, it ends behind what the pipe holds then, even if some process has
// escaped that still could.
type source struct {
	pipe   *os.File
	silent *atomic.Bool
	seen   bool // that it is silent
	left   int  // bytes that the pipe held then
}

func (s *source) Read(b []byte) (int, error) {
	for {
		if s.silent.Load() {
			if !s.seen {
				s.seen, s.left = true, outlet.Held(s.pipe)
			}
			if s.left <= 0 {
				return 0, io.EOF
			}
			b = b[:min(len(b), s.left)]
		}
		n, err := s.pipe.Read(b)
		s.left -= n
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) { // woken by finishOutput
			if err := s.pipe.SetReadDeadline(time.Time{}); err != nil {
				return 0, err
			}
			continue
		}
		return n, err
	}
}

// finishOutput sends the rest of the output on and waits for its readers, unless
// the pod has failed or is told to end: then what they do not take is dropped.
func (p *pod) finishOutput() {
	p.silent.Store(true)
	for _, r := range p.pipes {
		_ = r.SetReadDeadline(time.Now()) // wakes its reader
	}
	p.copies.Wait()
	for _, r := range p.pipes {
		_ = r.Close() // only read
	}
	if p.first != nil && p.cfg.Status == nil { // whose text follows
		p.err.EndLine()
	}
	lost := p.out.Flush()
	if p.err != p.out {
		lost += p.err.Flush()
	}
	if lost > 0 {
		p.err.Tell(fmt.Sprintf("outrigger-launch: %d bytes of output are dropped: nobody reads them\n", lost))
		p.err.Flush()
	}
}
