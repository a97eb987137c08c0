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

// Sidecars may make other connections than those for data, with the same certificates,
// for purposes other than messages of ranks. ALPN (RFC 7301) names the purpose; a control
// connection names none.

// Handler serves a connection that a peer has made, until it returns.
type Handler func(ctx context.Context, peer link.Peer, conn net.Conn) error

// serverTLS returns the accepting side's configuration.
func serverTLS(cfg *Config) *tls.Config {
	if len(cfg.Protocols) == 0 {
		return cfg.TLS
	}
	c := cfg.TLS.Clone()
	for name := range cfg.Protocols {
		c.NextProtos = append(c.NextProtos, name)
	}
	return c
}

// Open makes a connection for protocol to a peer. It tries again until ctx ends: the peer
// may not have started yet.
func (m *Mesh) Open(ctx context.Context, peer link.Peer, protocol string) (net.Conn, error) {
	var why error
	for pause := backoffFirst; ; pause = min(2*pause, backoffMax) {
		conn, err := m.openOnce(ctx, peer, protocol)
		if err == nil {
			return conn, nil
		}
		why = betterCause(ctx, why, err)
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

// betterCause returns the reason of the last attempt, or that of the one before if the
// end of ctx has cut the last one off: a time-out says nothing about a peer that has
// refused until then. A connection ends by the deadline itself, possibly before ctx does.
func betterCause(ctx context.Context, before, last error) error {
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
		_ = raw.Close() // the mesh is closing
		return nil, net.ErrClosed
	}
	t, err := m.handshakeProtocol(raw, peer, protocol)
	if err != nil {
		m.untrack(raw)
		return nil, err
	}
	return &protocolConn{Conn: t, end: sync.OnceFunc(func() { m.untrack(raw) })}, nil
}

func (m *Mesh) handshakeProtocol(raw net.Conn, peer link.Peer, protocol string) (*tls.Conn, error) {
	if err := raw.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout)); err != nil {
		return nil, err
	}
	c := m.cfg.TLS.Clone()
	c.NextProtos = []string{protocol}
	t := tls.Client(&observedConn{raw, new(dialResult)}, c)
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

// protocolConn is a connection that Mesh.Close ends, too.
type protocolConn struct {
	net.Conn
	end func()
}

func (b *protocolConn) Close() error {
	err := b.Conn.Close()
	b.end()
	return err
}

// CloseWrite tells the peer that no more data follows.
func (b *protocolConn) CloseWrite() error {
	if t, ok := b.Conn.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	return b.Close()
}
