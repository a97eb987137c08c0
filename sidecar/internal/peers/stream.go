package peers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// stream is an encrypted data connection. The engine has one end of a socket
// pair, which to it is a connection like any other; two goroutines carry bytes
// between the other end and TLS.
type stream struct {
	peer  link.Peer
	raw   net.Conn
	tls   *tls.Conn
	local *os.File
	limit int64
}

const (
	// rekeyDefault is how much one key encrypts. RFC 8446, 5.5, allows
	// AES-GCM some 2^24.5 full records, 390 GiB; crypto/tls never asks for new
	// keys, so the connection ends before that and is made again.
	rekeyDefault = 256 << 30
	pumpBytes    = 64 << 10 // four records
	pairBytes    = 1 << 20  // buffer of the socket pair, each way
)

// secure does the TLS handshake on the proven data connection fd, which it
// owns, and returns the engine's end of the stream.
func (m *Mesh) secure(peer link.Peer, fd int, dialler bool) (int, error) {
	f := os.NewFile(uintptr(fd), "data connection")
	raw, err := net.FileConn(f)
	_ = f.Close() // FileConn has its own
	if err != nil {
		return -1, fmt.Errorf("data connection: %w", err)
	}
	s := &stream{peer: peer, raw: raw, limit: m.cfg.RekeyBytes}
	if err := m.shakeStream(s, dialler); err != nil {
		return -1, errors.Join(err, raw.Close())
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, errors.Join(fmt.Errorf("data connection: %w", err), raw.Close())
	}
	for _, end := range pair {
		_ = unix.SetsockoptInt(end, unix.SOL_SOCKET, unix.SO_SNDBUF, pairBytes) // the default works too
	}
	s.local = os.NewFile(uintptr(pair[0]), "stream")
	if !m.carry(s) {
		return -1, errors.Join(net.ErrClosed, s.local.Close(), unix.Close(pair[1]), raw.Close())
	}
	return pair[1], nil
}

func (m *Mesh) shakeStream(s *stream, dialler bool) error {
	c := m.cfg.TLS.Clone()
	c.DynamicRecordSizingDisabled = true // large records are what costs least
	if s.tls = tls.Server(s.raw, c); dialler {
		s.tls = tls.Client(s.raw, c)
	}
	if err := s.raw.SetDeadline(time.Now().Add(m.cfg.Patience)); err != nil {
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

// carry starts the stream's goroutines, unless the mesh is closed.
func (m *Mesh) carry(s *stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.streams[s] = true
	m.carried.Go(func() {
		var in sync.WaitGroup
		in.Go(s.inward)
		s.outward()
		in.Wait()
		m.mu.Lock()
		delete(m.streams, s)
		m.mu.Unlock()
	})
	return true
}

// outward sends what the engine writes until it closes its end; then, having
// sent all, it ends the connection.
func (s *stream) outward() {
	b := make([]byte, pumpBytes)
	for sent := int64(0); sent < s.limit; {
		n, err := s.local.Read(b)
		if n > 0 {
			if _, err := s.tls.Write(b[:n]); err != nil {
				break
			}
			sent += int64(n)
		}
		if err != nil {
			break
		}
	}
	_, _ = s.tls.Close(), s.local.Close() // inward ends with them
}

// inward hands over what comes until the peer ends the connection; the engine
// reads the rest from its end, and then its end.
func (s *stream) inward() {
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
	_, _ = s.raw.Close(), s.local.Close() // outward ends with them
}

// drainTime bounds Drain.
const drainTime = time.Second

// Drain lets encrypted connections send what the engine wrote before it closed
// its ends, and ends those that cannot. Preconditions: Close has returned, and
// the engine is closed.
func (m *Mesh) Drain() {
	done := make(chan struct{})
	go func() { m.carried.Wait(); close(done) }()
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
