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

// Bounds of claims.
const (
	claimPause  = 2 * time.Millisecond  // between looks at a connection that is about to end
	claimsMax   = 8                     // connections of one rank that wait for its place
	gonePause   = 20 * time.Millisecond // between looks whether a client that waits for its Welcome is there
	claimedText = "rank %d is attached already: start each rank once"
)

// errClientGone is of a client that has given up before its Welcome: its rank was not attached,
// and another try may be.
var errClientGone = errors.New("session: the client has closed its connection before it was attached")

// claim takes a rank for one connection. The next program of a rank may come before the end
// of the one before it is known here, and its socket may be open still, in a process that it
// has started. So the connection before is waited for if its client has gone, and ended if it
// has said goodbye.
func (s *Server) claim(rank uint32, conn *net.UnixConn) error {
	s.mu.Lock()
	crowded := s.claiming[rank] >= claimsMax
	if !crowded {
		s.claiming[rank]++
	}
	s.mu.Unlock()
	if crowded {
		return fmt.Errorf(claimedText, rank)
	}
	defer func() {
		s.mu.Lock()
		s.claiming[rank]--
		s.mu.Unlock()
	}()
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
			return fmt.Errorf(claimedText, rank)
		}
		time.Sleep(claimPause) // its last words are to be heard
	}
}

// attachSession makes a session known to the host, which may have it wait until its rank may
// attach again. A client that goes meanwhile is withdrawn: its rank would be one that has
// vanished, and its place would be held until then.
func (s *Server) attachSession(conn *net.UnixConn, sess *Session) error {
	if hungUp(conn) {
		return errClientGone
	}
	sess.gone = func() bool { return hungUp(conn) }
	answer := make(chan error, 1)
	go func() { answer <- s.host.AttachSession(sess) }()
	look := time.NewTicker(gonePause)
	defer look.Stop()
	for {
		select {
		case err := <-answer:
			return err
		case <-look.C:
			if hungUp(conn) {
				s.host.Withdraw(sess, errClientGone)
				return <-answer
			}
		}
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
