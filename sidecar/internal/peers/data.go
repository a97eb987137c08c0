package peers

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// ticketID identifies a data connection that a control connection has agreed on.
type ticketID [16]byte

// ticket permits one data connection. It expires after the time of a handshake, and when
// the same peer gets another one.
type ticket struct {
	id          ticketID
	peer        link.Peer
	incarnation uint64 // incarnation of the peer's process
	key         []byte
	end         Endpoint // nil: data uses the data connection
	timer       *time.Timer
}

func (m *Mesh) issue(t *ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil { // no connection will use it
		t.drop(m)
		return
	}
	m.dropTicket(t.peer)
	m.tickets[t.peer] = t
	t.timer = time.AfterFunc(m.cfg.HandshakeTimeout, func() {
		if late := m.redeem(t.id); late != nil {
			late.drop(m)
		}
	})
}

// dropTicket drops the last ticket of a peer. Preconditions: m.mu is held.
func (m *Mesh) dropTicket(peer link.Peer) {
	if old := m.tickets[peer]; old != nil {
		delete(m.tickets, peer)
		old.timer.Stop()
		old.drop(m)
	}
}

// drop closes the Endpoint of a ticket that was not used.
func (t *ticket) drop(m *Mesh) {
	if err := closeEndpoint(t.end); err != nil {
		m.cfg.Log.Warn("closing a direct connection failed", "peer", t.peer, "cause", err)
	}
}

// redeem removes and returns a ticket; nil: unknown, used or expired.
func (m *Mesh) redeem(id ticketID) *ticket {
	m.mu.Lock()
	defer m.mu.Unlock()
	for peer, t := range m.tickets {
		if t.id == id {
			delete(m.tickets, peer)
			t.timer.Stop()
			return t
		}
	}
	return nil
}

// The data connection begins with a hello: magic, ticket, nonce, proof; the answer is:
// nonce, proof. A proof is an HMAC of all preceding bytes and the role, so that one
// side's cannot be used as the other's.
const (
	dataMagic  = "OUTRDAT1"
	nonceBytes = 16
	helloBytes = len(dataMagic) + len(ticketID{}) + nonceBytes + sha256.Size
	replyBytes = nonceBytes + sha256.Size
)

var errProof = errors.New("data connection: the proof is wrong")

func proof(key []byte, role string, said ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(role)) // a hash never fails
	for _, b := range said {
		h.Write(b)
	}
	return h.Sum(nil)
}

// proveDial executes the dialling side of a data connection.
func proveDial(conn net.Conn, id ticketID, key []byte) error {
	hello := make([]byte, 0, helloBytes)
	hello = append(append(hello, dataMagic...), id[:]...)
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand)
	hello = append(hello, nonce[:]...)
	hello = append(hello, proof(key, "dial", hello)...)
	if _, err := conn.Write(hello); err != nil {
		return fmt.Errorf("data connection: %w", err)
	}
	var reply [replyBytes]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return fmt.Errorf("data connection: %w", err)
	}
	if !hmac.Equal(reply[nonceBytes:], proof(key, "accept", hello, reply[:nonceBytes])) {
		return errProof
	}
	return nil
}

// acceptData executes the accepting side; first is the byte that was read already.
func (m *Mesh) acceptData(conn net.Conn, first byte, slot *admission.Slot) error {
	hello := make([]byte, helloBytes)
	hello[0] = first
	if first != dataMagic[0] {
		return fmt.Errorf("neither TLS nor a data connection (first byte %#x)", first)
	}
	if _, err := io.ReadFull(conn, hello[1:]); err != nil {
		return fmt.Errorf("data connection: %w", err)
	}
	if string(hello[:len(dataMagic)]) != dataMagic {
		return errors.New("neither TLS nor a data connection")
	}
	t := m.redeem(ticketID(hello[len(dataMagic):]))
	if t == nil {
		return errors.New("data connection with an unknown, used or expired ticket")
	}
	said := hello[:helloBytes-sha256.Size]
	fd, err := m.provenData(conn, t, hello, said, slot)
	if err != nil {
		t.drop(m)
		return err
	}
	m.connected(t.peer, t.incarnation, fd, t.end)
	return nil
}

// provenData checks the proof of a data connection and answers with this side's.
func (m *Mesh) provenData(conn net.Conn, t *ticket, hello, said []byte, slot *admission.Slot) (int, error) {
	if !hmac.Equal(hello[len(said):], proof(t.key, "dial", said)) {
		return -1, errProof
	}
	if !slot.Release() { // a proven connection needs no slot
		return -1, errEvicted
	}
	reply := make([]byte, nonceBytes, replyBytes)
	_, _ = rand.Read(reply) // never fails (crypto/rand)
	reply = append(reply, proof(t.key, "accept", hello, reply)...)
	if _, err := conn.Write(reply); err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	return m.engineSocket(conn, t.peer, false)
}

// engineSocket makes the engine's socket from a proven data connection.
func (m *Mesh) engineSocket(conn net.Conn, peer link.Peer, dialler bool) (int, error) {
	fd, err := duplicateSocket(conn)
	if err != nil || !m.cfg.Encrypt {
		return fd, err
	}
	return m.secure(peer, fd, dialler)
}

// duplicateSocket returns a duplicate of conn's socket; the owner of conn closes conn.
func duplicateSocket(conn net.Conn) (int, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("data connection: %T has no socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	if dupErr != nil {
		return -1, fmt.Errorf("data connection: %w", dupErr)
	}
	return fd, nil
}
