package peers

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Beside data connections there may be others, between the same sidecars and
// with the same certificates, for what is no message of a rank. Which one it is
// for, ALPN says (RFC 7301); a control connection names nothing.

// Handler serves a connection that a peer has made, until it returns.
type Handler func(ctx context.Context, peer link.Peer, conn net.Conn) error

// serverTLS is the accepting side's configuration.
func serverTLS(cfg *Config) *tls.Config {
	if len(cfg.Beside) == 0 {
		return cfg.TLS
	}
	c := cfg.TLS.Clone()
	for name := range cfg.Beside {
		c.NextProtos = append(c.NextProtos, name)
	}
	return c
}

// Open makes a connection beside the others to a peer. It tries again until ctx
// ends: the peer may not have started yet.
func (m *Mesh) Open(ctx context.Context, peer link.Peer, protocol string) (net.Conn, error) {
	var why error
	for pause := backoffFirst; ; pause = min(2*pause, backoffMax) {
		conn, err := m.openOnce(ctx, peer, protocol)
		if err == nil {
			return conn, nil
		}
		why = telling(ctx, why, err)
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("%w (%w)", why, context.Cause(ctx))
		case <-m.ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("%w (%w)", why, net.ErrClosed)
		}
	}
}

// telling is the reason of the last attempt, or of the one before where the end of ctx has cut
// that one off: a timeout says nothing of a peer that has refused until then. A connection ends
// by the deadline itself, maybe before ctx does.
func telling(ctx context.Context, before, last error) error {
	end, timed := ctx.Deadline()
	cut := ctx.Err() != nil || timed && !time.Now().Before(end)
	if cut && before != nil {
		return before
	}
	return last
}

func (m *Mesh) openOnce(ctx context.Context, peer link.Peer, protocol string) (net.Conn, error) {
	raw, err := m.cfg.Names.Dial(ctx, m.cfg.Addresses[peer])
	if err != nil {
		return nil, err
	}
	if !m.track(raw) {
		_ = raw.Close() // closing down
		return nil, net.ErrClosed
	}
	t, err := m.shakeBeside(raw, peer, protocol)
	if err != nil {
		m.untrack(raw)
		return nil, err
	}
	return &beside{Conn: t, end: sync.OnceFunc(func() { m.untrack(raw) })}, nil
}

func (m *Mesh) shakeBeside(raw net.Conn, peer link.Peer, protocol string) (*tls.Conn, error) {
	if err := raw.SetDeadline(time.Now().Add(m.cfg.Patience)); err != nil {
		return nil, err
	}
	c := m.cfg.TLS.Clone()
	c.NextProtos = []string{protocol}
	t := tls.Client(&overheard{raw, new(answer)}, c)
	got, err := m.identify(t)
	switch {
	case err != nil:
		return nil, err
	case got != peer:
		return nil, fmt.Errorf("%w: pod %d answers at the address of pod %d", pki.ErrStranger, got, peer)
	case t.ConnectionState().NegotiatedProtocol != protocol:
		return nil, fmt.Errorf("pod %d does not speak %s: use images of one release", peer, protocol)
	}
	return t, raw.SetDeadline(time.Time{})
}

// beside is a connection that Mesh.Close ends too.
type beside struct {
	net.Conn
	end func()
}

func (b *beside) Close() error {
	err := b.Conn.Close()
	b.end()
	return err
}

// CloseWrite tells the peer that there is no more.
func (b *beside) CloseWrite() error {
	if t, ok := b.Conn.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	return b.Close()
}
