package remote

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// outputs holds the pipes to which a command writes, and the goroutines that read them.
type outputs struct {
	pipes   []*os.File
	readers sync.WaitGroup
}

// add makes a pipe and returns the end for the command.
func (o *outputs) add(to stream) (*os.File, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.pipes = append(o.pipes, in)
	o.readers.Go(func() { drain(in, to) })
	return out, nil
}

// finish sends all output that the command has written, however slowly the agent reads, and
// the output that a daemon left behind by the command writes within grace.
func (o *outputs) finish() {
	for _, p := range o.pipes {
		_ = p.SetReadDeadline(time.Now().Add(grace)) // pipes have deadlines
	}
	o.readers.Wait()
	for _, p := range o.pipes { // it was only read
		_ = p.Close() // only read
	}
}

// drain copies a pipe until all writers have closed it, or until the deadline; after the
// deadline it copies only what the pipe holds.
func drain(pipe *os.File, to stream) {
	room, left, over := make([]byte, dataMax), 0, false
	for !over || left > 0 {
		b := room
		if over {
			b = room[:min(left, dataMax)]
		}
		n, err := pipe.Read(b)
		left -= n
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !over && pipe.SetReadDeadline(time.Time{}) == nil:
			over, left = true, outlet.Buffered(pipe)
		default:
			return
		}
	}
}
