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

// errAsked is the answer to the higher-numbered side: it is being dialled.
var errAsked = errors.New("the peer is dialling us")

// Greeting on the control connection: version u16, flags u16, pod u32,
// incarnation u64, both ways; then the accepting side's verdict u32 and ticket.
const (
	greetingBytes = 16
	flagEncrypt   = 1
	flagDirect    = 2 // an offer of a direct connection follows, if the peer says so too
	verdictBytes  = 4 + len(ticketID{})
	verdictGo     = 1
	verdictAsked  = 2
	exporterLabel = "EXPORTER-outrigger-data"
)

// accept serves an incoming connection: TLS is a control connection, anything
// else has to be a data connection.
func (m *Mesh) accept(conn net.Conn, slot *admission.Slot) error {
	begun := time.Now()
	if err := conn.SetDeadline(begun.Add(min(m.cfg.FirstWord, m.cfg.Patience))); err != nil {
		return err
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return fmt.Errorf("nothing was said: %w", err)
	}
	slot.MarkActive()
	if err := conn.SetDeadline(begun.Add(m.cfg.Patience)); err != nil {
		return err
	}
	if first[0] == tlsHandshake {
		return m.acceptControl(&unread{conn, first[:]}, slot)
	}
	return m.acceptData(conn, first[0], slot)
}

// tlsHandshake is the first byte of a TLS connection (RFC 8446, 5.1).
const tlsHandshake = 22

// unread gives back the byte that was read to tell the kinds apart.
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
	if serve := m.cfg.Beside[t.ConnectionState().NegotiatedProtocol]; serve != nil {
		if !slot.Release() {
			return errSentAway
		}
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return err
		}
		return serve(m.ctx, peer, t)
	}
	if err := m.admit(conn, peer, slot); err != nil {
		return err
	}
	defer m.dismiss(conn, peer)
	g, err := m.greet(t, peer)
	if err != nil {
		return err
	}
	var b [verdictBytes]byte
	// Only the lower-numbered pod dials, so that dials never cross: the other
	// one has just asked for it.
	if m.cfg.Self < peer {
		if m.withdrawn(conn, peer) {
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
	defer m.turnOf(peer, conn)()
	return m.acceptDirect(t, k)
}

// withdrawPause is how long a question waits that may be withdrawn.
const withdrawPause = 100 * time.Millisecond

// withdrawn reports that a peer which has asked for a connection wants none any more: it
// has ended the question, since it had one meanwhile. A busy machine comes to a question
// when its own dial is long over, and another connection would break the one that there is.
// A peer that this side has no reason to dial gets a moment for that.
func (m *Mesh) withdrawn(conn net.Conn, peer link.Peer) bool {
	m.mu.Lock()
	dials := m.met[peer] == 0 || m.dials[peer] != nil
	m.mu.Unlock()
	if dials || conn.SetReadDeadline(time.Now().Add(withdrawPause)) != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1)) // it waits for the verdict, and says nothing before
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// identify completes the TLS handshake and says whose certificate it was.
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

// greet exchanges versions, pod numbers, whether data is encrypted, and which
// process of its pod each side is, which it returns of the peer.
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
	// The version first: what follows it may differ.
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

// greeting is what a peer has said of itself.
type greeting struct {
	incarnation uint64
	direct      bool // it can connect directly
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

// answer is what a dial has come to.
type answer struct {
	fd          int
	incarnation uint64 // of the peer
	accepted    bool   // somebody's system has accepted a connection
	heard       bool   // and has sent something, or ended it
	end         End    // nil: data goes by fd
}

// dial makes a connection to peer.
func (m *Mesh) dial(ctx context.Context, peer link.Peer) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Patience)
	defer cancel()
	id, key, err := m.dialControl(ctx, peer, &a)
	if err != nil {
		return a, err
	}
	if a.fd, err = m.dialData(ctx, peer, &a, id, key); err != nil {
		err = errors.Join(err, closeEnd(a.end))
	}
	return a, err
}

func (m *Mesh) dialData(ctx context.Context, peer link.Peer, a *answer, id ticketID, key []byte) (int, error) {
	conn, end, err := m.open(ctx, peer, a)
	if err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	defer end() // the socket is duplicated below
	if err := proveDial(&overheard{conn, a}, id, key); err != nil {
		return -1, err
	}
	return m.takeOver(conn, peer, true)
}

// open makes a TCP connection to peer, which end closes. Its reads end when
// nothing is heard for too long, and with ctx.
func (m *Mesh) open(ctx context.Context, peer link.Peer, a *answer) (conn net.Conn, end func(), err error) {
	a.accepted, a.heard = false, false
	if conn, err = m.cfg.Names.Dial(ctx, m.cfg.Addresses[peer]); err != nil {
		return nil, nil, err
	}
	a.accepted = true
	silent := time.AfterFunc(m.cfg.Silence, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() {
		silent.Stop()
		stop()
		_ = conn.Close() // it has served its purpose
	}, nil
}

// here is the first byte of an accepting sidecar: it runs, and has taken the
// connection. The dialling side says its own without waiting for it.
const here = 6

// overheard notes whether anything comes from the other end, and takes the first
// byte away.
type overheard struct {
	net.Conn
	*answer
}

func (o *overheard) Read(b []byte) (int, error) {
	if !o.heard {
		var first [1]byte
		n, err := o.Conn.Read(first[:])
		o.heard = n > 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err != nil:
			return 0, err
		case n > 0 && first[0] != here:
			return 0, fmt.Errorf("no sidecar answers there (first byte %#x)", first[0])
		}
	}
	return o.Conn.Read(b)
}

func (m *Mesh) dialControl(ctx context.Context, peer link.Peer, a *answer) (id ticketID, key []byte, err error) {
	conn, end, err := m.open(ctx, peer, a)
	if err != nil {
		return id, nil, err
	}
	defer end()
	t := tls.Client(&overheard{conn, a}, m.cfg.TLS)
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
