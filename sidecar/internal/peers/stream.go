package peers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// stream is an encrypted data connection. The engine has one side of a socket pair, which
// it uses like any other connection; two goroutines copy bytes between the other side and
// TLS.
type stream struct {
	peer   link.Peer
	raw    net.Conn
	tls    *tls.Conn
	local  *os.File
	limit  int64
	unread time.Duration // how long the peer may take nothing
	log    *slog.Logger
}

const (
	// rekeyDefault bounds the bytes encrypted with one key. RFC 8446, 5.5, allows AES-GCM
	// about 2^24.5 full records, 390 GiB; crypto/tls never asks for new keys, so the
	// connection ends before that and is made again.
	rekeyDefault = 256 << 30
	pumpBytes    = 64 << 10  // four records
	pairBytes    = 1 << 20   // buffer of the socket pair, in each direction
	farPair      = 64 << 10  // the same in a job of more than memory.ManyConns pods
	farData      = 128 << 10 // buffers of the data connection in such a job, in each direction
)

// secure executes the TLS handshake on the proven data connection fd, which it owns, and
// returns the engine's side of the stream.
func (m *Mesh) secure(peer link.Peer, fd int, dialler bool) (int, error) {
	f := os.NewFile(uintptr(fd), "data connection")
	raw, err := net.FileConn(f)
	_ = f.Close() // FileConn has duplicated it
	if err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	s := &stream{peer: peer, raw: raw, limit: m.cfg.RekeyBytes, unread: m.cfg.Unread, log: m.cfg.Log}
	if err := m.handshakeStream(s, dialler); err != nil {
		return -1, errors.Join(err, raw.Close())
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, errors.Join(fmt.Errorf("data connection: %w", err), raw.Close())
	}
	buffer := pairBytes
	if len(m.cfg.Addresses) > memory.ManyConns { // the kernel would allow each connection megabytes
		buffer = farPair
		if c, ok := raw.(*net.TCPConn); ok {
			_, _ = c.SetReadBuffer(farData), c.SetWriteBuffer(farData) // other sizes work, too
		}
	}
	for _, end := range pair {
		_ = unix.SetsockoptInt(end, unix.SOL_SOCKET, unix.SO_SNDBUF, buffer) // the default size works, too
	}
	s.local = os.NewFile(uintptr(pair[0]), "stream")
	if !m.start(s) {
		return -1, errors.Join(net.ErrClosed, s.local.Close(), unix.Close(pair[1]), raw.Close())
	}
	return pair[1], nil
}

func (m *Mesh) handshakeStream(s *stream, dialler bool) error {
	c := m.cfg.TLS.Clone()
	c.DynamicRecordSizingDisabled = true // large records cost least
	if s.tls = tls.Server(s.raw, c); dialler {
		s.tls = tls.Client(s.raw, c)
	}
	if err := s.raw.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout)); err != nil {
		return fmt.Errorf("data connection: %w", err)
	}
	got, err := m.identify(s.tls)
	if err != nil {
		return fmt.Errorf("data connection: %w", err)
	}
	if got != s.peer {
		return fmt.Errorf("data connection: proven as pod %d, certificate of pod %d", s.peer, got)
	}
	return s.raw.SetDeadline(time.Time{})
}

// start starts the stream's goroutines, unless the mesh is closed.
func (m *Mesh) start(s *stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.streams[s] = true
	m.running.Go(func() {
		var in sync.WaitGroup
		in.Go(s.receive)
		s.send()
		in.Wait()
		m.mu.Lock()
		delete(m.streams, s)
		m.mu.Unlock()
	})
	return true
}

// send sends the bytes that the engine writes until the engine closes its side; then it
// ends the connection.
func (s *stream) send() {
	b := make([]byte, pumpBytes)
	for sent := int64(0); sent < s.limit; {
		n, err := s.local.Read(b)
		if n > 0 {
			if err := s.write(b[:n]); err != nil {
				_, _ = s.raw.Close(), s.local.Close() // without TLS's own end, which would wait for the peer again
				return
			}
			sent += int64(n)
		}
		if err != nil {
			break
		}
	}
	_, _ = s.tls.Close(), s.local.Close() // receive ends with them
}

// write sends bytes to the peer. If the peer does not take all of them in time, the connection ends,
// and the engine makes another one: its side must not wait for ever. That is a reconnection too many if
// this process itself was stopped for that time.
func (s *stream) write(b []byte) error {
	if err := s.raw.SetWriteDeadline(time.Now().Add(s.unread)); err != nil {
		return err
	}
	_, err := s.tls.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.log.Warn("encrypted connection ended: the peer has not read for too long", "peer", s.peer, "limit", s.unread, "cause", err)
	}
	return err
}

// receive passes bytes to the engine until the peer ends the connection; the engine reads
// the rest from its side, and then the end.
func (s *stream) receive() {
	b := make([]byte, pumpBytes)
	for {
		n, err := s.tls.Read(b)
		if n > 0 {
			if _, err := s.local.Write(b[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = s.raw.Close(), s.local.Close() // send ends with them
}

// drainTime bounds Drain.
const drainTime = time.Second

// Drain lets encrypted connections send what the engine wrote before it closed its sides,
// and ends those that cannot. Preconditions: Close has returned, and the engine is
// closed.
func (m *Mesh) Drain() {
	done := make(chan struct{})
	go func() { m.running.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(drainTime):
	}
	m.mu.Lock()
	for s := range m.streams {
		_, _ = s.raw.Close(), s.local.Close() // their goroutines end
	}
	m.mu.Unlock()
	<-done
}
