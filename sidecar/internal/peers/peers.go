// Package peers makes the connections between the sidecars of a job
// (api/wire/PROTOCOL.md §2): lazily, mutually authenticated with TLS 1.3 by the
// job's own authority, one for each pair however both sides dial.
//
// A control connection proves who is who; the data connection that follows is
// bound to it by a secret that only the two ends of the control connection can
// derive, and is handed to the engine as a socket.
package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Connected takes a connected, authenticated socket to a peer; it owns fd.
type Connected func(peer link.Peer, fd int)

// Config of a Mesh.
type Config struct {
	Self      link.Peer
	Job       string   // job id, as in the certificates
	Addresses []string // host:port of each peer's listener
	TLS       *tls.Config
	Log       *slog.Logger
	Connected Connected
	Patience  time.Duration // for each handshake as a whole; default 5 s
	Pending   int           // incoming handshakes under way at once; default 128, more wait

	Encrypt    bool  // data connections inside TLS; the same on all sidecars of a job
	RekeyBytes int64 // after so many bytes one way an encrypted connection is made again; default 256 GiB
}

// Limits of the wire-up.
const (
	patienceDefault = 5 * time.Second
	pendingDefault  = 128
	acceptPause     = 20 * time.Millisecond // for descriptors to become free
)

// Mesh makes and accepts the connections of one sidecar.
type Mesh struct {
	cfg      Config
	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	pending  chan struct{}
	refused  atomic.Uint64

	mu      sync.Mutex
	dials   map[link.Peer]context.CancelFunc
	tickets map[link.Peer]*ticket // the last one issued to each peer
	conns   map[net.Conn]bool
	streams map[*stream]bool

	carried sync.WaitGroup // streams
}

// New makes a mesh that accepts on listener, which it owns.
func New(cfg Config, listener net.Listener) *Mesh {
	if cfg.Patience == 0 {
		cfg.Patience = patienceDefault
	}
	if cfg.Pending == 0 {
		cfg.Pending = pendingDefault
	}
	if cfg.RekeyBytes == 0 {
		cfg.RekeyBytes = rekeyDefault
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Mesh{
		cfg: cfg, listener: listener, ctx: ctx, stop: stop, pending: make(chan struct{}, cfg.Pending),
		dials: map[link.Peer]context.CancelFunc{}, tickets: map[link.Peer]*ticket{}, conns: map[net.Conn]bool{},
		streams: map[*stream]bool{},
	}
}

// Refused counts the connections that were turned away.
func (m *Mesh) Refused() uint64 { return m.refused.Load() }

// Serve accepts until Close.
func (m *Mesh) Serve() error {
	for {
		conn, err := m.listener.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			// Connections that exist go on; new ones wait in the queue.
			m.cfg.Log.Error("no descriptor left for a new connection: raise the limit of open files", "cause", err)
			time.Sleep(acceptPause)
			continue
		default:
			return fmt.Errorf("peers: accepting: %w", err)
		}
		select {
		case m.pending <- struct{}{}:
		case <-m.ctx.Done():
			_ = conn.Close() // closing down
			return nil
		}
		if !m.track(conn) {
			_ = conn.Close() // closing down
			return nil
		}
		go m.shake(conn)
	}
}

// shake is an incoming connection's handshake.
func (m *Mesh) shake(conn net.Conn) {
	defer func() { <-m.pending }()
	defer m.untrack(conn)
	if err := m.accept(conn); err != nil && m.ctx.Err() == nil {
		m.refused.Add(1)
		m.cfg.Log.Warn("connection refused", "from", conn.RemoteAddr(), "cause", err)
	}
}

// Close ends everything but encrypted streams (Drain) and waits for it.
func (m *Mesh) Close() error {
	m.stop()
	err := m.listener.Close()
	m.mu.Lock()
	for c := range m.conns {
		_ = c.Close() // its goroutine ends
	}
	for _, t := range m.tickets {
		t.timer.Stop()
	}
	clear(m.tickets)
	m.mu.Unlock()
	m.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// track makes Close wait for the goroutine of c, which untrack ends.
func (m *Mesh) track(c net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.conns[c] = true
	m.wg.Add(1)
	return true
}

func (m *Mesh) untrack(c net.Conn) {
	m.mu.Lock()
	delete(m.conns, c)
	m.mu.Unlock()
	_ = c.Close() // whatever is worth keeping has its own descriptor
	m.wg.Done()
}

// Connect starts dialling peer, until it succeeds, the peer's own dial does, or
// Cancel.
func (m *Mesh) Connect(peer link.Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dials[peer] != nil || m.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	m.dials[peer] = cancel
	m.wg.Go(func() { m.dialUntil(ctx, peer) })
}

// Cancel stops dialling peer.
func (m *Mesh) Cancel(peer link.Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cancel := m.dials[peer]; cancel != nil {
		cancel()
		delete(m.dials, peer)
	}
}

// connected hands over a socket that the peer's dial made.
func (m *Mesh) connected(peer link.Peer, fd int) {
	m.Cancel(peer)
	m.cfg.Connected(peer, fd)
}
