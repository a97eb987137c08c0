package pmi

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// joint is a connection of which something has been read ahead.
type joint struct {
	net.Conn
	in io.Reader
}

func (j *joint) Read(b []byte) (int, error) { return j.in.Read(b) }

// CloseWrite tells the other side that there is no more.
func (j *joint) CloseWrite() error { return closeWrite(j.Conn) }

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// carry carries bytes between two connections until both have said all, or ctx ends.
func carry(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		_ = a.SetDeadline(time.Unix(1, 0))
		_ = b.SetDeadline(time.Unix(1, 0))
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { pour(a, b) })
	wg.Go(func() { pour(b, a) })
	wg.Wait()
}

// pour carries what from says. When to has gone, what follows is still read: a
// connection that is closed with something unread loses what was written to it last.
func pour(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = io.Copy(io.Discard, from)
	}
	_ = closeWrite(to) // it may have gone
}
