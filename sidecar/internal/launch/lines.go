package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// lineMax bounds a line of output; a longer one is sent on in pieces.
const lineMax = 64 << 10

// copyLines sends whole lines on, so that those of several ranks do not mix.
func (p *pod) copyLines(rank int, r *os.File, w io.Writer) {
	in := bufio.NewReaderSize(&source{pipe: r, silent: &p.silent}, lineMax)
	prefix := ""
	if p.cfg.Prefix {
		prefix = fmt.Sprintf("[%d] ", rank)
	}
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			out := append([]byte(prefix), line...)
			if out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			_, _ = w.Write(out) // our own output may be closed; the rank goes on
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
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
	lost := p.out.Flush()
	if p.err != p.out {
		lost += p.err.Flush()
	}
	if lost > 0 {
		p.err.Tell(fmt.Sprintf("outrigger-launch: %d bytes of output are dropped: nobody reads them\n", lost))
		p.err.Flush()
	}
}
