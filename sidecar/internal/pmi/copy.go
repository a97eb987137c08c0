package pmi

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// bufferedConn is a connection of which a part was read ahead.
type bufferedConn struct {
	net.Conn
	in io.Reader
}

func (j *bufferedConn) Read(b []byte) (int, error) { return j.in.Read(b) }

// CloseWrite ends the sending direction.
func (j *bufferedConn) CloseWrite() error { return closeWrite(j.Conn) }

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// relay copies bytes between two connections until both have ended, or ctx ends.
func relay(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		_ = a.SetDeadline(time.Unix(1, 0))
		_ = b.SetDeadline(time.Unix(1, 0))
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { copyAll(a, b) })
	wg.Go(func() { copyAll(b, a) })
	wg.Wait()
}

// copyAll copies from one connection to the other. If the destination has gone, it still
// reads the rest: a connection that is closed with unread bytes loses the bytes written to
// it last.
func copyAll(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = io.Copy(io.Discard, from)
	}
	_ = closeWrite(to) // the other side may have gone
}
