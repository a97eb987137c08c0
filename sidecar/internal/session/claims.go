package session

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// claim is a rank's connection, in its handshake or attached. A rank has one at a time: a
// second process that is started for a rank costs no memory.
type claim struct {
	conn    *net.UnixConn
	session *Session      // once it is attached; guarded by the server's mu
	over    chan struct{} // closed with the claim
}

// claimPause is how often a connection is looked at that is about to end.
const claimPause = 2 * time.Millisecond

// claim takes a rank for one connection. The next program of a rank may come before the end
// of the one before it is known here, and its socket may be open still, in a process that it
// has started. So the connection before is waited for if its client has gone, and ended if it
// has said goodbye.
func (s *Server) claim(rank uint32, conn *net.UnixConn) error {
	for end := time.Now().Add(s.cfg.Patience); ; {
		s.mu.Lock()
		old := s.ranks[rank]
		if old == nil {
			s.ranks[rank] = &claim{conn: conn, over: make(chan struct{})}
			s.mu.Unlock()
			return nil
		}
		left := old.session != nil && old.session.over.Load()
		dead := old.session != nil && old.session.PID > 0 && errors.Is(unix.Kill(old.session.PID, 0), unix.ESRCH)
		s.mu.Unlock()
		if left {
			_ = old.conn.CloseRead() // serve sees the end
		}
		if left || hungUp(old.conn) {
			<-old.over
			continue
		}
		if !dead || time.Now().After(end) {
			return fmt.Errorf("rank %d is attached already: start each rank once", rank)
		}
		time.Sleep(claimPause) // its last words are to be heard
	}
}

// hungUp reports that a connection's other end was closed, which is known here when it is
// known there.
func hungUp(conn *net.UnixConn) (is bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true // closed here
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		is = err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0
	})
	return is || err != nil
}

// attachedAs notes the session of a claim.
func (s *Server) attachedAs(rank uint32, sess *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.ranks[rank]; c != nil {
		c.session = sess
	}
}

// unclaim gives a rank free.
func (s *Server) unclaim(rank uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ranks[rank].over)
	delete(s.ranks, rank)
}
