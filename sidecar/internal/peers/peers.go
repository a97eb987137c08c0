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

// Connected takes a connected, authenticated socket to a peer; it owns fd.
type Connected func(peer link.Peer, fd int)

// Config of a Mesh.
type Config struct {
	Self      link.Peer
	Job       string        // job id, as in the certificates
	Addresses []string      // host:port of each peer's listener
	Names     *dns.Resolver // of their hosts; default: one of the mesh's own
	TLS       *tls.Config
	Log       *slog.Logger
	Connected Connected
	// Failed is told when a peer's address accepts connections and nobody says
	// anything there, or that it cannot be reached as the job requires: it is not
	// worth another dial.
	Failed func(peer link.Peer, cause error)
	// Lost is told, before Connected, when a peer is another process than the one
	// that was connected before.
	Lost func(peer link.Peer, cause error)
	// Beside serves connections that are not for data, by ALPN name (Open).
	Beside map[string]Handler

	Direct *Direct // nil: data goes by data connections

	Incarnation uint64        // of this process, among all that were pod Self; not 0; default random
	Patience    time.Duration // for each handshake as a whole; default 5 s
	FirstWord   time.Duration // for the first byte of an incoming connection; default 1 s
	Silence     time.Duration // without a byte from a peer that accepts connections, after which it is given up, but for time in which this process was stopped or had no processor; default 5 s
	Early       time.Duration // the same of a peer that was never connected, where addresses accept connections before their sidecars have started; default Silence
	Ask         time.Duration // after a break, for the lower-numbered side to dial before it is asked to; default 1 s, at most a fifth of Silence
	Pending     int           // incoming connections that have not proven yet whose they are, at once; default 128, half of them from one address

	Encrypt    bool  // data connections inside TLS; the same on all sidecars of a job
	RekeyBytes int64 // after so many bytes one way an encrypted connection is made again; default 256 GiB
}

// Limits of the wire-up.
const (
	patienceDefault  = 5 * time.Second
	firstWordDefault = time.Second
	// Longer than a connected peer may be silent: it may just be starting.
	silenceDefault = 5 * time.Second
	pendingDefault = memory.PeerPlaces
	// A peer has at most two connections of its own under way, a control and a
	// data connection; more are attempts that it has given up.
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

	strangers, known admission.Warnings // of connections that have not shown whose they are, and of peers

	mu      sync.Mutex
	dials   map[link.Peer]context.CancelFunc
	tickets map[link.Peer]*ticket // the last one issued to each peer
	conns   map[net.Conn]bool
	streams map[*stream]bool
	proven  map[link.Peer][]net.Conn // control connections whose peer is known, oldest first
	making  map[link.Peer]*making    // ends, for peers that dial
	met     map[link.Peer]uint64     // incarnations that were connected first

	carried sync.WaitGroup // streams
}

// New makes a mesh that accepts on listener, which it owns.
func New(cfg Config, listener net.Listener) *Mesh {
	if cfg.Patience == 0 {
		cfg.Patience = patienceDefault
	}
	if cfg.FirstWord == 0 {
		cfg.FirstWord = firstWordDefault
	}
	if cfg.Silence == 0 {
		cfg.Silence = silenceDefault
	}
	if cfg.Early == 0 {
		cfg.Early = cfg.Silence
	}
	if cfg.Ask == 0 {
		cfg.Ask = min(askAfter, cfg.Silence/askShare) // or the peer would be given up before it is asked
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
		streams: map[*stream]bool{}, proven: map[link.Peer][]net.Conn{}, making: map[link.Peer]*making{}, met: map[link.Peer]uint64{},
	}
}

// deferAccept leaves connections that say nothing with the system for a second,
// where there is room for thousands. Peers speak first, and at once.
func deferAccept(listener net.Listener) {
	l, ok := listener.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return // Serve will say what is wrong with it
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1) // the lobby is there without it too
	})
}

// handshakeRate is how many connections a second one address may open, and twice as many at once. A
// handshake costs some 0.4 ms of a processor, so that one address takes a twelfth of one. A pod opens a
// few connections, and a node's pods that use its network some hundred when a job starts.
const handshakeRate = 200

// Refused counts the connections that were turned away.
func (m *Mesh) Refused() uint64 { return m.refused.Load() }

// Serve accepts until Close.
func (m *Mesh) Serve() error {
	for {
		conn, err := admission.Accept(m.listener.Accept, func(err error) {
			m.cfg.Log.Error("a peer could not come in", "cause", err) // connections that exist go on
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
			_ = conn.Close() // whoever it is tries again
			continue
		}
		if !m.track(conn) {
			_ = conn.Close() // closing down
			return nil
		}
		// At once: however long the handshakes of others take, a peer that waits
		// for its own learns that there is somebody.
		_, _ = conn.Write([]byte{here}) // shake will see what is wrong
		go m.shake(conn, slot)
	}
}

// host is where a connection comes from, without its port.
func host(conn net.Conn) string {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return string(a.IP)
	}
	return ""
}

// errSentAway ends the handshake of a connection that has lost its place.
var errSentAway = errors.New("it had not proven in time whose it is, and others needed the place")

// refusedLine is the log line of a connection that was turned away.
const refusedLine = "connection refused"

// shake is an incoming connection's handshake.
func (m *Mesh) shake(conn net.Conn, slot *admission.Slot) {
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
		m.strangers.Log(m.cfg.Log, refusedLine, args...)
	case errors.Is(err, net.ErrClosed): // it has lost its place, as many do
		m.cfg.Log.Debug(refusedLine, "from", conn.RemoteAddr(), "cause", errSentAway)
	default:
		m.known.Log(m.cfg.Log, refusedLine, args...)
	}
}

// admit takes a connection out of the limiter: its peer is known.
func (m *Mesh) admit(conn net.Conn, peer link.Peer, slot *admission.Slot) error {
	if !slot.Release() {
		return errSentAway
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

func (m *Mesh) dismiss(conn net.Conn, peer link.Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proven[peer] = slices.DeleteFunc(m.proven[peer], func(c net.Conn) bool { return c == conn })
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

// connected hands over a socket to the process that a peer is now.
func (m *Mesh) connected(peer link.Peer, incarnation uint64, fd int, end End) {
	m.Cancel(peer)
	m.mu.Lock()
	if m.met[peer] == 0 {
		m.met[peer] = incarnation
	}
	same := m.met[peer] == incarnation
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

// errRestarted says why a peer that answers is lost: frames of the new process
// would be taken for repeated ones of the old.
var errRestarted = errors.New("it was started again")
