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

// copyOutput forwards the output of a rank until r ends, with the rank in front of each line if the
// configuration asks for that, and passes it to c if c is not nil.
func (p *pod) copyOutput(rank int, r *os.File, w *outlet.Writer, c *clued) {
	s := p.stream(rank, w)
	all := []io.Writer{s, p.tail.stream(fmt.Sprintf("[%d] ", rank))}
	if c != nil {
		all = append(all, c)
		defer c.end()
	}
	_, _ = io.Copy(io.MultiWriter(all...), &source{pipe: r, silent: &p.silent}) // a Stream accepts all bytes, and a read error means the end of the output
	s.Flush()
}

// stream creates the destination of one output of a rank.
func (p *pod) stream(rank int, w *outlet.Writer) *outlet.Stream {
	if p.cfg.Prefix {
		return w.Stream(outlet.Marked, fmt.Sprintf("[%d] ", rank))
	}
	return w.Stream(outlet.Unmarked, "")
}

// texts are the destinations of what ranks print by process management.
type texts struct {
	mu sync.Mutex // guards of, and is held while a text is written
	of map[int][]io.Writer
}

// say prints a text of a rank as its standard error, in complete lines.
func (p *pod) say(rank int, text string) {
	if rank < p.cfg.First || rank > p.cfg.Last {
		return // not a rank of this pod
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
		_, _ = w.Write(lines) // both accept all bytes
	}
	if c := p.clue(rank); c != nil {
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			c.add(line)
		}
	}
}

// source is the read end of a rank's pipe. When silent is set, because all ranks have ended, it ends
// after the bytes that the pipe holds at that time, even if a process that escaped still has the write
// end open.
type source struct {
	pipe   *os.File
	silent *atomic.Bool
	seen   bool // silent was set at an earlier read
	left   int  // bytes still to be read of those that the pipe held then
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

// finishOutput forwards the rest of the output and waits for its readers. If the pod has failed or is
// told to end, output that is not read is dropped.
func (p *pod) finishOutput() {
	p.silent.Store(true)
	for _, r := range p.pipes {
		_ = r.SetReadDeadline(time.Now()) // wakes its reader
	}
	p.copies.Wait()
	for _, r := range p.pipes {
		_ = r.Close() // only read
	}
	if p.first != nil && p.cfg.Status == nil { // its text is printed next
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
