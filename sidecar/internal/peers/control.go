package peers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// errAsked is the result of the higher-numbered side's dial: the peer dials now.
var errAsked = errors.New("the peer is dialling us")

// Greeting on the control connection, in both directions: version u16, flags u16, pod
// u32, incarnation u64; then the accepting side's verdict u32 and ticket.
const (
	greetingBytes = 16
	flagEncrypt   = 1
	flagDirect    = 2 // an offer of a direct connection follows, if the peer sets the flag, too
	verdictBytes  = 4 + len(ticketID{})
	verdictGo     = 1
	verdictAsked  = 2
	exporterLabel = "EXPORTER-outrigger-data"
)

// accept serves an incoming connection: a TLS connection is a control connection, any
// other must be a data connection.
func (m *Mesh) accept(conn net.Conn, slot *admission.Slot) error {
	begun := time.Now()
	if err := conn.SetDeadline(begun.Add(min(m.cfg.FirstByteTimeout, m.cfg.HandshakeTimeout))); err != nil {
		return err
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return fmt.Errorf("no byte arrived: %w", err)
	}
	slot.MarkActive()
	if err := conn.SetDeadline(begun.Add(m.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	if first[0] == tlsHandshake {
		return m.acceptControl(&unread{conn, first[:]}, slot)
	}
	return m.acceptData(conn, first[0], slot)
}

// tlsHandshake is the first byte of a TLS connection (RFC 8446, 5.1).
const tlsHandshake = 22

// unread returns the byte again that was read to tell the kinds apart.
type unread struct {
	net.Conn
	first []byte
}

func (u *unread) Read(b []byte) (int, error) {
	if len(u.first) > 0 {
		n := copy(b, u.first)
		u.first = u.first[n:]
		return n, nil
	}
	return u.Conn.Read(b)
}

func (m *Mesh) acceptControl(conn net.Conn, slot *admission.Slot) error {
	t := tls.Server(conn, m.server)
	peer, err := m.identify(t)
	if err != nil {
		return err
	}
	if serve := m.cfg.Protocols[t.ConnectionState().NegotiatedProtocol]; serve != nil {
		if !slot.Release() {
			return errEvicted
		}
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return err
		}
		return serve(m.ctx, peer, t)
	}
	if err := m.authenticated(conn, peer, slot); err != nil {
		return err
	}
	defer m.removeProven(conn, peer)
	g, err := m.greet(t, peer)
	if err != nil {
		return err
	}
	var b [verdictBytes]byte
	// Only the lower-numbered pod dials, so that dials never cross: the other one has
	// just asked for a connection.
	if m.cfg.Self < peer {
		if m.requestCancelled(conn, peer) {
			return nil
		}
		m.Connect(peer)
		binary.LittleEndian.PutUint32(b[:], verdictAsked)
		_, err := t.Write(b[:])
		return err
	}
	id := newTicketID()
	key, err := dataKey(t, id)
	if err != nil {
		return err
	}
	direct, err := m.direct(g, peer)
	if err != nil {
		return err
	}
	k := &ticket{id: id, peer: peer, incarnation: g.incarnation, key: key}
	if !direct {
		m.issue(k)
	}
	binary.LittleEndian.PutUint32(b[:], verdictGo)
	copy(b[4:], id[:])
	if _, err := t.Write(b[:]); err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	if !direct {
		return nil
	}
	defer m.beginAttempt(peer, conn)()
	return m.acceptDirect(t, k)
}

// cancelPause is how long the answer to a request that may be cancelled waits.
const cancelPause = 100 * time.Millisecond

// requestCancelled reports whether a peer that has asked for a connection has cancelled
// the request, by ending this connection, because it has a connection meanwhile. A busy
// machine may handle a request long after its own dial has finished, and another
// connection would break the existing one. If this side has no other reason to dial, it
// waits a moment for the cancellation.
func (m *Mesh) requestCancelled(conn net.Conn, peer link.Peer) bool {
	m.mu.Lock()
	dials := m.incarnations[peer] == 0 || m.dials[peer] != nil
	m.mu.Unlock()
	if dials || conn.SetReadDeadline(time.Now().Add(cancelPause)) != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1)) // the peer waits for the verdict, and sends nothing before it
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// identify completes the TLS handshake and returns the pod of the certificate.
func (m *Mesh) identify(t *tls.Conn) (link.Peer, error) {
	if err := t.HandshakeContext(m.ctx); err != nil {
		return 0, fmt.Errorf("TLS: %w", err)
	}
	pod, err := pki.PodOf(t.ConnectionState().PeerCertificates[0], m.cfg.Job)
	if err != nil {
		return 0, err
	}
	peer := link.Peer(pod)
	if pod >= len(m.cfg.Addresses) || peer == m.cfg.Self {
		return 0, fmt.Errorf("%w: pod %d", pki.ErrStranger, pod)
	}
	return peer, nil
}

// greet exchanges versions, pod numbers, whether data is encrypted, and incarnations, and
// returns the peer's greeting.
func (m *Mesh) greet(t *tls.Conn, peer link.Peer) (g greeting, err error) {
	flags := uint16(0)
	if m.cfg.Direct != nil {
		flags |= flagDirect
	}
	if m.cfg.Encrypt {
		flags |= flagEncrypt
	}
	var b [greetingBytes]byte
	le := binary.LittleEndian
	le.PutUint16(b[0:], wire.Version)
	le.PutUint16(b[2:], flags)
	le.PutUint32(b[4:], uint32(m.cfg.Self))
	le.PutUint64(b[8:], m.cfg.Incarnation)
	if _, err := t.Write(b[:]); err != nil {
		return g, fmt.Errorf("control connection: %w", err)
	}
	// The version first: the bytes that follow may differ.
	if _, err := io.ReadFull(t, b[:2]); err != nil {
		return g, fmt.Errorf("control connection: %w", err)
	}
	if v := le.Uint16(b[0:]); v != wire.Version {
		return g, fmt.Errorf("pod %d speaks protocol version %d, this sidecar version %d: use images of one release", peer, v, wire.Version)
	}
	if _, err := io.ReadFull(t, b[2:]); err != nil {
		return g, fmt.Errorf("control connection: %w", err)
	}
	f := le.Uint16(b[2:])
	if f&^flagDirect != flags&^flagDirect {
		return g, fmt.Errorf("pod %d has connection flags %#x, this sidecar %#x (1: encrypted data): give all sidecars of the job the same document", peer, f, flags)
	}
	if p := le.Uint32(b[4:]); p != uint32(peer) {
		return g, fmt.Errorf("%w: certificate of pod %d, greeting of pod %d", pki.ErrStranger, peer, p)
	}
	g = greeting{incarnation: le.Uint64(b[8:]), direct: f&flagDirect != 0}
	if g.incarnation == 0 {
		return g, fmt.Errorf("pod %d greets without its incarnation", peer)
	}
	return g, nil
}

// greeting is the content of a peer's greeting.
type greeting struct {
	incarnation uint64
	direct      bool // the peer can connect directly
}

// dataKey derives the secret that binds a data connection (RFC 8446, 7.5).
func dataKey(t *tls.Conn, id ticketID) ([]byte, error) {
	s := t.ConnectionState()
	key, err := s.ExportKeyingMaterial(exporterLabel, id[:], 32)
	if err != nil {
		return nil, fmt.Errorf("binding the data connection: %w", err)
	}
	return key, nil
}

// dialResult is the result of a dial.
type dialResult struct {
	fd          int
	incarnation uint64   // incarnation of the peer's process
	accepted    bool     // the peer's kernel has accepted a connection
	heard       bool     // the peer has sent a byte, or ended the connection
	end         Endpoint // nil: data uses fd
}

// dial makes a connection to peer.
func (m *Mesh) dial(ctx context.Context, peer link.Peer) (a dialResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.HandshakeTimeout)
	defer cancel()
	id, key, err := m.dialControl(ctx, peer, &a)
	if err != nil {
		return a, err
	}
	if a.fd, err = m.dialData(ctx, peer, &a, id, key); err != nil {
		err = errors.Join(err, closeEndpoint(a.end))
	}
	return a, err
}

func (m *Mesh) dialData(ctx context.Context, peer link.Peer, a *dialResult, id ticketID, key []byte) (int, error) {
	conn, end, err := m.open(ctx, peer, a)
	if err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	defer end() // the socket is duplicated below
	if err := proveDial(&observedConn{conn, a}, id, key); err != nil {
		return -1, err
	}
	return m.engineSocket(conn, peer, true)
}

// open makes a TCP connection to peer; end closes it. Its reads fail when the peer is
// silent for too long, and when ctx ends.
func (m *Mesh) open(ctx context.Context, peer link.Peer, a *dialResult) (conn net.Conn, end func(), err error) {
	a.accepted, a.heard = false, false
	conn, err = m.cfg.Names.Dial(ctx, m.cfg.Addresses[peer])
	m.setAccepted(peer, err == nil)
	if err != nil {
		return nil, nil, err
	}
	a.accepted = true
	silent := time.AfterFunc(m.cfg.Silence, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() {
		silent.Stop()
		stop()
		_ = conn.Close() // it is not needed any more
	}, nil
}

// errOther is wrapped by the error of a dial that another program has answered, such as a proxy that
// has no sidecar behind it. A sidecar of another job is known by its certificate (pki.ErrStranger).
var errOther = errors.New("no sidecar answers there")

// aliveByte is the first byte of an accepting sidecar: it runs, and has accepted the
// connection. The dialling side does not wait for it before it writes.
const aliveByte = 6

// observedConn records whether the other side sends anything, and removes the first byte.
type observedConn struct {
	net.Conn
	*dialResult
}

func (o *observedConn) Read(b []byte) (int, error) {
	if !o.heard {
		var first [1]byte
		n, err := o.Conn.Read(first[:])
		o.heard = n > 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case o.heard && err != nil:
			return 0, fmt.Errorf("%w: no byte came: %w", errOther, err)
		case err != nil:
			return 0, err
		case n > 0 && first[0] != aliveByte:
			return 0, fmt.Errorf("%w: first byte %#x, want %#x", errOther, first[0], aliveByte)
		}
	}
	return o.Conn.Read(b)
}

func (m *Mesh) dialControl(ctx context.Context, peer link.Peer, a *dialResult) (id ticketID, key []byte, err error) {
	conn, end, err := m.open(ctx, peer, a)
	if err != nil {
		return id, nil, err
	}
	defer end()
	t := tls.Client(&observedConn{conn, a}, m.cfg.TLS)
	got, err := m.identify(t)
	if err != nil {
		return id, nil, err
	}
	if got != peer {
		return id, nil, fmt.Errorf("%w: pod %d answers at the address of pod %d", pki.ErrStranger, got, peer)
	}
	g, err := m.greet(t, peer)
	if err != nil {
		return id, nil, err
	}
	a.incarnation = g.incarnation
	var b [verdictBytes]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return id, nil, fmt.Errorf("control connection: %w", err)
	}
	if v := binary.LittleEndian.Uint32(b[:]); v != verdictGo {
		return id, nil, errAsked
	}
	copy(id[:], b[4:])
	if key, err = dataKey(t, id); err != nil {
		return id, nil, err
	}
	direct, err := m.direct(g, peer)
	if direct {
		a.end, err = m.dialDirect(t, peer)
	}
	return id, key, err
}

func newTicketID() (id ticketID) {
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return id
}
