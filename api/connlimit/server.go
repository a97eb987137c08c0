package connlimit

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/time/rate"
)

// Server returns an HTTP/1.1 server for a Listener with these bounds. HTTP/2 is off: it
// carries many requests over one connection, which would count as one.
func (b *Bounds) Server(h http.Handler) *http.Server {
	one := new(http.Protocols)
	one.SetHTTP1(true)
	return &http.Server{
		Handler: b.paced(h), Protocols: one, MaxHeaderBytes: b.Header,
		ReadHeaderTimeout: b.Request, ReadTimeout: b.Request, WriteTimeout: b.Answer, IdleTimeout: b.Idle,
		ConnContext: requests, ErrorLog: log.New(&limitedLog{to: os.Stderr, limit: rate.NewLimiter(linesRate, linesBurst)}, "", 0),
	}
}

// Lines per second about errors of connections: untrusted clients must not fill the
// log.
const linesRate, linesBurst = 1, 10

// limitedLog is a log with a bounded rate of lines.
type limitedLog struct {
	to    io.Writer
	limit *rate.Limiter
}

func (s *limitedLog) Write(line []byte) (int, error) {
	if !s.limit.Allow() {
		return len(line), nil
	}
	return s.to.Write(line)
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// paced delays a request until Gap after the start of the previous one of its
// connection.
func (b *Bounds) paced(h http.Handler) http.Handler {
	if b.Gap <= 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(connKey{}).(*conn); ok {
			if wait := b.Gap - time.Since(p.last); wait > 0 {
				t := time.NewTimer(wait)
				select {
				case <-t.C:
				case <-r.Context().Done():
					t.Stop()
					return
				}
			}
			p.last = time.Now()
		}
		h.ServeHTTP(w, r)
	})
}

// requests returns a context that is cancelled when the connection loses its slot.
func requests(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	p, ok := c.(*conn)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, connKey{}, p))
	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()
	return ctx
}

// Serve serves requests on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler, b *Bounds) error {
	s := b.Server(h)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // Serve returns its error
	defer stop()
	if err := s.Serve(Listen(l, b)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
