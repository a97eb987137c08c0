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

// textsMax bounds the texts that wait to be printed, in bytes: further ones are dropped, and a line
// says so.
const textsMax = 4 << 20

// texts are what ranks print by process management. The caller of printText does not wait
// for the readers of the output: it serves all ranks of the pod.
type texts struct {
	mu       sync.Mutex // guards what follows
	waiting  []text
	bytes    int // number of bytes of the texts in waiting
	lost     int // texts that were dropped since the last one
	printing bool
	over     bool // the output is being finished: nothing is printed any more

	of map[target][]io.Writer // destinations of each output; used only by the goroutine that prints
}

// target is an output of a rank.
type target struct {
	rank int
	out  bool
}

type text struct {
	to      target
	lines   []byte
	printed func()
}

// printText prints a text of a rank on one of its outputs, in complete lines, and calls
// printed then. The rank's clue has it at once.
func (p *pod) printText(rank int, out bool, lines string, printed func()) {
	if rank < p.cfg.First || rank > p.cfg.Last {
		printed()
		return // not a rank of this pod
	}
	x := text{target{rank, out}, []byte(strings.TrimSuffix(lines, "\n") + "\n"), printed}
	if c := p.clue(rank); c != nil && !out {
		for line := range bytes.SplitSeq(x.lines, []byte("\n")) {
			c.add(line)
		}
	}
	t := &p.texts
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.bytes+len(x.lines) > textsMax {
		t.lost++
		go printed() // it may call printText
		return
	}
	t.waiting = append(t.waiting, x)
	t.bytes += len(x.lines)
	if !t.printing {
		t.printing = true
		p.copies.Go(p.printTexts)
	}
}

// printTexts prints the texts that wait, until there are none.
func (p *pod) printTexts() {
	for {
		x, lost, ok := p.texts.next()
		if lost > 0 {
			_, _ = fmt.Fprintf(p.err, "outrigger-launch: %d texts of ranks are lost, since the output was not read\n", lost) // as below
		}
		if !ok {
			return
		}
		if p.texts.of == nil {
			p.texts.of = map[target][]io.Writer{}
		}
		if p.texts.of[x.to] == nil {
			to := p.err
			if x.to.out {
				to = p.out
			}
			p.texts.of[x.to] = []io.Writer{p.stream(x.to.rank, to), p.tail.stream(fmt.Sprintf("[%d] ", x.to.rank))}
		}
		for _, w := range p.texts.of[x.to] {
			_, _ = w.Write(x.lines) // both accept all bytes
		}
		x.printed()
	}
}

// next takes the oldest text. If none is left, it returns how many were dropped, and the
// printing ends.
func (t *texts) next() (x text, lost int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		lost, t.lost, t.printing = t.lost, 0, false
		return text{}, lost, false
	}
	x = t.waiting[0]
	t.waiting[0] = text{}
	t.waiting = t.waiting[1:]
	t.bytes -= len(x.lines)
	return x, 0, true
}

// end stops the printing: later texts are dropped.
func (t *texts) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// source is the read end of a rank's pipe. When silent is set, because all ranks have
// ended, it ends after the bytes that the pipe holds at that time, even if a process that
// escaped still has the write end open.
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
				s.seen, s.left = true, outlet.Buffered(s.pipe)
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

// finishOutput forwards the rest of the output and waits for its readers. If the pod has
// failed or is told to end, output that is not read is dropped.
func (p *pod) finishOutput() {
	p.texts.end()
	p.silent.Store(true)
	for _, r := range p.pipes {
		_ = r.SetReadDeadline(time.Now()) // wakes its reader
	}
	p.copies.Wait()
	for _, r := range p.pipes {
		_ = r.Close() // they were only read
	}
	if p.first != nil && p.cfg.Status == nil { // its text is printed next
		p.err.EndLine()
	}
	lost := p.out.Flush()
	if p.err != p.out {
		lost += p.err.Flush()
	}
	if lost > 0 {
		p.err.OfferReserved(fmt.Sprintf("outrigger-launch: %d bytes of output are dropped: no process reads them\n", lost))
		p.err.Flush()
	}
}
