// Package peers makes the connections between the sidecars of a job (api/wire/PROTOCOL.md
// §2): on demand, mutually authenticated with TLS 1.3 by the job's own authority, and one
// for each pair even if both sides dial.
//
// A control connection authenticates both sides. The data connection that follows is
// bound to it by a secret that only the two sides of the control connection can derive,
// and is passed to the engine as a socket. The sidecar creates one Mesh; the engine calls
// Connect and Cancel.
package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/connlimit"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/dns"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Connected receives a connected, authenticated socket to a peer, and owns fd.
type Connected func(peer link.Peer, fd int)

// Config is the configuration of a Mesh.
type Config struct {
	Self      link.Peer
	Job       string        // job id, as in the certificates
	Addresses []string      // host:port of each peer's listener
	Names     *dns.Resolver // resolver of their hosts; default: a new one
	TLS       *tls.Config
	Log       *slog.Logger
	Connected Connected
	// Failed is called when a peer's address accepts connections but sends nothing, or
	// when the peer cannot be reached as the job requires: the mesh does not dial it any
	// more.
	Failed func(peer link.Peer, cause error)
	// Lost is called, before Connected, when the peer is another process than the one
	// that was connected before.
	Lost func(peer link.Peer, cause error)
	// Protocols serves connections that are not for data, by ALPN name (Open).
	Protocols map[string]Handler

	Direct *Direct // nil: data goes by data connections

	Incarnation      uint64        // number of this process among all processes that were pod Self; not 0; default random
	HandshakeTimeout time.Duration // bound of each handshake; default 5 s
	FirstByteTimeout time.Duration // bound of the wait for the first byte of an incoming connection; default 1 s
	Silence          time.Duration // how long a peer that accepts connections may send nothing before it fails, without time in which this process was stopped or had no processor; default 5 s
	Early            time.Duration // the bound of Silence for a peer that was never connected, if addresses accept connections before their sidecars have started; default Silence
	Hung             time.Duration // the bound of Silence for a peer that was connected before; default Silence
	Ask              time.Duration // how long, after a break, the higher-numbered side waits for the lower-numbered one to dial before it asks; default 1 s, at most a fifth of Silence
	Unread           time.Duration // how long a peer may take for a buffer of an encrypted connection before the connection ends; default Silence
	Pending          int           // bound of incoming connections that are not authenticated, half of them from one address; default 128

	Encrypt    bool  // data connections use TLS; must be the same on all sidecars of a job
	RekeyBytes int64 // bytes in one direction after which an encrypted connection is replaced; default 256 GiB
}

// Limits of connection setup.
const (
	handshakeDefault = 5 * time.Second
	firstByteDefault = time.Second
	// Longer than a connected peer may be silent: it may just be starting.
	silenceDefault = 5 * time.Second
	pendingDefault = memory.PeerSlots
	// A peer has at most two connections in a handshake, a control and a data connection;
	// more are attempts that it has given up.
	provenMax = 4
)

// Mesh makes and accepts the connections of one sidecar.
type Mesh struct {
	cfg      Config
	server   *tls.Config // of the accepting side
	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	limiter  *admission.Limiter
	rates    *connlimit.Rates
	refused  atomic.Uint64

	refusals, peerRefusals admission.Warnings // warnings about unauthenticated connections, and about peers

	mu           sync.Mutex
	dials        map[link.Peer]context.CancelFunc
	tickets      map[link.Peer]*ticket // the last ticket issued to each peer
	conns        map[net.Conn]bool
	streams      map[*stream]bool
	proven       map[link.Peer][]net.Conn // control connections that are authenticated, oldest first
	attempts     map[link.Peer]*attempt   // attempts to make an Endpoint, by the dialling peer
	incarnations map[link.Peer]uint64     // incarnation of the first connection with each peer
	accepted     map[link.Peer]bool       // whether the last attempt to connect a peer found a kernel that accepts connections, and no other program

	running sync.WaitGroup // streams
}

// New returns a mesh that accepts on listener, which it owns.
func New(cfg Config, listener net.Listener) *Mesh {
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = handshakeDefault
	}
	if cfg.FirstByteTimeout == 0 {
		cfg.FirstByteTimeout = firstByteDefault
	}
	if cfg.Silence == 0 {
		cfg.Silence = silenceDefault
	}
	if cfg.Unread == 0 {
		cfg.Unread = cfg.Silence
	}
	if cfg.Hung == 0 {
		cfg.Hung = cfg.Silence
	}
	if cfg.Early == 0 {
		cfg.Early = cfg.Silence
	}
	if cfg.Ask == 0 {
		cfg.Ask = min(askAfter, cfg.Silence/askShare) // or the peer would fail before it is asked
	}
	if cfg.Pending == 0 {
		cfg.Pending = pendingDefault
	}
	if cfg.Incarnation == 0 {
		cfg.Incarnation = 1 + rand.Uint64N(math.MaxUint64)
	}
	if cfg.RekeyBytes == 0 {
		cfg.RekeyBytes = rekeyDefault
	}
	if cfg.Names == nil {
		cfg.Names = new(dns.Resolver)
	}
	deferAccept(listener)
	ctx, stop := context.WithCancel(context.Background())
	return &Mesh{
		cfg: cfg, server: serverTLS(&cfg), listener: listener, ctx: ctx, stop: stop, limiter: admission.New(cfg.Pending, (cfg.Pending+1)/2), rates: connlimit.NewRates(handshakeRate),
		dials: map[link.Peer]context.CancelFunc{}, tickets: map[link.Peer]*ticket{}, conns: map[net.Conn]bool{},
		streams: map[*stream]bool{}, proven: map[link.Peer][]net.Conn{}, attempts: map[link.Peer]*attempt{}, incarnations: map[link.Peer]uint64{}, accepted: map[link.Peer]bool{},
	}
}

// deferAccept leaves connections without data in the kernel for a second, where there is
// room for thousands. Peers send their first byte at once.
func deferAccept(listener net.Listener) {
	l, ok := listener.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return // Serve will report the error
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1) // the limiter bounds them in any case
	})
}

// handshakeRate is how many connections a second one address may open, with bursts of
// twice as many. A handshake takes about 0.4 ms of a processor, so one address uses at
// most a twelfth of one. A pod opens a few connections, and the pods of a node that use
// its network some hundred when a job starts.
const handshakeRate = 200

// Refused returns the number of connections that were refused.
func (m *Mesh) Refused() uint64 { return m.refused.Load() }

// Serve accepts connections until Close.
func (m *Mesh) Serve() error {
	for {
		conn, err := admission.Accept(m.listener.Accept, func(err error) {
			m.cfg.Log.Error("accepting a connection failed", "cause", err) // connections that exist go on
		})
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			return fmt.Errorf("peers: accepting: %w", err)
		}
		if m.rates.TooMany(connlimit.Address(conn.RemoteAddr())) {
			m.refused.Add(1)
			_ = conn.Close() // a peer tries again
			continue
		}
		slot := m.limiter.Admit(host(conn), func() { _ = conn.Close() }) // its handshake ends
		if slot == nil {
			m.refused.Add(1)
			_ = conn.Close() // the client tries again
			continue
		}
		if !m.track(conn) {
			_ = conn.Close() // the mesh is closing
			return nil
		}
		// Send it at once: a peer that waits for its handshake then knows that this
		// sidecar runs, however long the handshakes of others take.
		_, _ = conn.Write([]byte{aliveByte}) // handshake will report an error
		go m.handshake(conn, slot)
	}
}

// host returns the address of a connection, without its port.
func host(conn net.Conn) string {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return string(a.IP)
	}
	return ""
}

// errEvicted ends the handshake of a connection that has lost its slot.
var errEvicted = errors.New("it did not authenticate in time, and other connections needed its slot")

// refusedLine is the log line of a refused connection.
const refusedLine = "connection refused"

// handshake executes an incoming connection's handshake.
func (m *Mesh) handshake(conn net.Conn, slot *admission.Slot) {
	defer m.untrack(conn)
	err := m.accept(conn, slot)
	stayed := slot.Release()
	if err == nil || m.ctx.Err() != nil {
		return
	}
	m.refused.Add(1)
	args := []any{"from", conn.RemoteAddr(), "cause", err}
	switch {
	case stayed:
		m.refusals.Log(m.cfg.Log, refusedLine, args...)
	case errors.Is(err, net.ErrClosed): // it has lost its slot, as many do
		m.cfg.Log.Debug(refusedLine, "from", conn.RemoteAddr(), "cause", errEvicted)
	default:
		m.peerRefusals.Log(m.cfg.Log, refusedLine, args...)
	}
}

// authenticated releases the connection's slot, since its peer is authenticated.
func (m *Mesh) authenticated(conn net.Conn, peer link.Peer, slot *admission.Slot) error {
	if !slot.Release() {
		return errEvicted
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := append(m.proven[peer], conn)
	if len(list) > provenMax {
		_ = list[0].Close() // its handshake ends
		list = slices.Delete(list, 0, 1)
	}
	m.proven[peer] = list
	return nil
}

func (m *Mesh) removeProven(conn net.Conn, peer link.Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proven[peer] = slices.DeleteFunc(m.proven[peer], func(c net.Conn) bool { return c == conn })
}

// Close ends everything except encrypted streams (Drain) and waits for it.
func (m *Mesh) Close() error {
	m.stop()
	err := m.listener.Close()
	m.mu.Lock()
	for c := range m.conns {
		_ = c.Close() // its goroutine ends
	}
	for _, t := range m.tickets {
		t.timer.Stop()
		t.drop(m)
	}
	clear(m.tickets)
	m.mu.Unlock()
	m.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// track makes Close wait for the goroutine of c, until untrack.
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
	_ = c.Close() // sockets that are passed on were duplicated
	m.wg.Done()
}

// Connect dials peer until it succeeds, the peer's own dial does, or Cancel.
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

// connected passes on a socket to the current process of a peer.
func (m *Mesh) connected(peer link.Peer, incarnation uint64, fd int, end Endpoint) {
	m.Cancel(peer)
	m.mu.Lock()
	if m.incarnations[peer] == 0 {
		m.incarnations[peer] = incarnation
	}
	delete(m.accepted, peer)
	same := m.incarnations[peer] == incarnation
	m.mu.Unlock()
	if !same && m.cfg.Lost != nil {
		m.cfg.Lost(peer, errRestarted)
	}
	if end != nil {
		m.cfg.Direct.Connected(peer, fd, end)
		return
	}
	m.cfg.Connected(peer, fd)
}

// errRestarted is why a peer that answers is lost: frames of the new process would be
// taken for repeated frames of the old one.
var errRestarted = errors.New("it was started again")
