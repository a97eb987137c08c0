package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// lineMax bounds a line of output; a longer one is sent on in pieces.
const lineMax = 64 << 10

// copyLines sends whole lines on, so that those of several ranks do not mix.
func (p *pod) copyLines(rank int, r *os.File, w io.Writer) {
	in := bufio.NewReaderSize(r, lineMax)
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
			p.out.Lock()
			_, _ = w.Write(out) // our own output may be closed; the rank goes on
			p.out.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// finishOutput waits for the rest of the output. All writers are gone; should
// one have escaped all the same, its silence ends the waiting.
func (p *pod) finishOutput() {
	done := make(chan struct{})
	go func() { p.copies.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(p.cfg.Grace):
		for _, r := range p.pipes {
			_ = r.SetReadDeadline(time.Now()) // wakes its reader
		}
		<-done
	}
	for _, r := range p.pipes {
		_ = r.Close() // only read
	}
}
