package peers

import (
	"net"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// Answers reports whether the machine of a peer without a plain TCP connection answers: it has
// acknowledged the data of an encrypted connection, or, if there is none, has accepted the last
// attempt to connect. A process that ended, and a machine that is lost, accept nothing; another
// program that accepts connections at the address is known by what it answers.
func (m *Mesh) Answers(peer link.Peer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.streams {
		if s.peer == peer && acknowledged(s.raw) { // there may be another one that ends
			return true
		}
	}
	return m.dials[peer] != nil && m.accepted[peer]
}

func (m *Mesh) setAccepted(peer link.Peer, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accepted[peer] = is
}

func acknowledged(c net.Conn) (is bool) {
	t, tcpConn := c.(*net.TCPConn)
	if !tcpConn {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { is = tcp.Acknowledged(int(fd)) })
	return is && err == nil
}
