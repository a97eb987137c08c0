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
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// errAsked is the answer to the higher-numbered side: it is being dialled.
var errAsked = errors.New("the peer is dialling us")

// Greeting on the control connection: version u16, flags u16, pod u32, both
// ways; then the accepting side's verdict u32 and ticket.
const (
	greetingBytes = 8
	flagEncrypt   = 1
	verdictBytes  = 4 + len(ticketID{})
	verdictGo     = 1
	verdictAsked  = 2
	exporterLabel = "EXPORTER-outrigger-data"
)

// accept serves an incoming connection: TLS is a control connection, anything
// else has to be a data connection.
func (m *Mesh) accept(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(m.cfg.Patience)); err != nil {
		return err
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return fmt.Errorf("nothing was said: %w", err)
	}
	if first[0] == tlsHandshake {
		return m.acceptControl(&unread{conn, first[:]})
	}
	return m.acceptData(conn, first[0])
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

func (m *Mesh) acceptControl(conn net.Conn) error {
	t := tls.Server(conn, m.cfg.TLS)
	peer, err := m.identify(t)
	if err != nil {
		return err
	}
	if err := m.greet(t, peer); err != nil {
		return err
	}
	var b [verdictBytes]byte
	// Only the lower-numbered pod dials, so that dials never cross: the other
	// one has just asked for it.
	if m.cfg.Self < peer {
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
	m.issue(&ticket{id: id, peer: peer, key: key})
	binary.LittleEndian.PutUint32(b[:], verdictGo)
	copy(b[4:], id[:])
	if _, err := t.Write(b[:]); err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	return nil
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

// greet exchanges versions, pod numbers and whether data is encrypted.
func (m *Mesh) greet(t *tls.Conn, peer link.Peer) error {
	flags := uint16(0)
	if m.cfg.Encrypt {
		flags |= flagEncrypt
	}
	var b [greetingBytes]byte
	le := binary.LittleEndian
	le.PutUint16(b[0:], wire.Version)
	le.PutUint16(b[2:], flags)
	le.PutUint32(b[4:], uint32(m.cfg.Self))
	if _, err := t.Write(b[:]); err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	if v := le.Uint16(b[0:]); v != wire.Version {
		return fmt.Errorf("pod %d speaks protocol version %d, this sidecar version %d: use images of one release", peer, v, wire.Version)
	}
	if f := le.Uint16(b[2:]); f != flags {
		return fmt.Errorf("pod %d has connection flags %#x, this sidecar %#x (1: encrypted data): give all sidecars of the job the same document", peer, f, flags)
	}
	if p := le.Uint32(b[4:]); p != uint32(peer) {
		return fmt.Errorf("%w: certificate of pod %d, greeting of pod %d", pki.ErrStranger, peer, p)
	}
	return nil
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

// dial makes a connection to peer and returns its socket.
func (m *Mesh) dial(ctx context.Context, peer link.Peer) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Patience)
	defer cancel()
	id, key, err := m.dialControl(ctx, peer)
	if err != nil {
		return -1, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", m.cfg.Addresses[peer])
	if err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	defer func() { _ = conn.Close() }() // the socket is duplicated below
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := proveDial(conn, id, key); err != nil {
		return -1, err
	}
	return m.takeOver(conn, peer, true)
}

func (m *Mesh) dialControl(ctx context.Context, peer link.Peer) (id ticketID, key []byte, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", m.cfg.Addresses[peer])
	if err != nil {
		return id, nil, err
	}
	defer func() { _ = conn.Close() }() // it has served its purpose
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	t := tls.Client(conn, m.cfg.TLS)
	got, err := m.identify(t)
	if err != nil {
		return id, nil, err
	}
	if got != peer {
		return id, nil, fmt.Errorf("%w: pod %d answers at the address of pod %d", pki.ErrStranger, got, peer)
	}
	if err := m.greet(t, peer); err != nil {
		return id, nil, err
	}
	var b [verdictBytes]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return id, nil, fmt.Errorf("control connection: %w", err)
	}
	if v := binary.LittleEndian.Uint32(b[:]); v != verdictGo {
		return id, nil, errAsked
	}
	copy(id[:], b[4:])
	key, err = dataKey(t, id)
	return id, key, err
}

func newTicketID() (id ticketID) {
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return id
}
