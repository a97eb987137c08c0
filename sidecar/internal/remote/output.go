package remote

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// outputs are the pipes that a command writes to, and who reads them.
type outputs struct {
	pipes   []*os.File
	readers sync.WaitGroup
}

// add makes one, and returns the command's end.
func (o *outputs) add(to stream) (*os.File, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.pipes = append(o.pipes, in)
	o.readers.Go(func() { drain(in, to) })
	return out, nil
}

// finish sends on all that the command has written, however slowly it is taken, and what
// a daemon that it has left behind writes within the grace.
func (o *outputs) finish() {
	for _, p := range o.pipes {
		_ = p.SetReadDeadline(time.Now().Add(grace)) // a pipe has one
	}
	o.readers.Wait()
	for _, p := range o.pipes {
		_ = p.Close() // only read
	}
}

// drain sends what comes until all writers have gone, or until the deadline: then only
// what the pipe holds.
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
