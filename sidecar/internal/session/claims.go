package session

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// claim is the connection of a rank, in its handshake or attached. A rank has one at a
// time, so that a second process started for the rank takes no memory.
type claim struct {
	conn    *net.UnixConn // set when the rank is attached; guarded by Server.mu
	session *Session      // session of the rank when it is attached; guarded by Server.mu
	over    chan struct{} // closed when the claim ends
}

// Bounds of waiting claims.
const (
	claimPause  = 2 * time.Millisecond  // delay between checks of a connection that is about to end
	claimsMax   = 8                     // connections of one rank that wait for an earlier one to end
	gonePause   = 20 * time.Millisecond // delay between checks whether a client that waits for its Welcome is still connected
	claimedText = "rank %d is attached already: start each rank once"
)

// errClientGone reports a client that closed its connection before its Welcome: its rank
// was not attached, and another connection may attach it.
var errClientGone = errors.New("session: the client has closed its connection before it was attached")

// claimRank claims a rank for one connection. The next program of a rank may connect before
// the server has noticed the end of the previous one, and the socket of the previous one
// may be open still, in a process that it started. If the previous client has closed its
// connection, claimRank waits for the end of its claim; if its session has detached,
// claimRank ends the connection.
func (s *Server) claimRank(rank uint32, conn *net.UnixConn) error {
	s.mu.Lock()
	full := s.claiming[rank] >= claimsMax
	if !full {
		s.claiming[rank]++
	}
	s.mu.Unlock()
	if full {
		return fmt.Errorf(claimedText, rank)
	}
	defer func() {
		s.mu.Lock()
		s.claiming[rank]--
		s.mu.Unlock()
	}()
	for end := time.Now().Add(s.cfg.HelloTimeout); ; {
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
			_ = old.conn.CloseRead() // serve reads the end of the connection
		}
		if left || hungUp(old.conn) {
			<-old.over
			continue
		}
		if !dead || time.Now().After(end) {
			return fmt.Errorf(claimedText, rank)
		}
		time.Sleep(claimPause) // its last descriptors must be processed first
	}
}

// attachSession passes a session to the host, which may delay it until its rank may attach
// again. If the client closes its connection meanwhile, the attachment is withdrawn: the
// rank would count as one that vanished, and would be claimed until then.
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

// hungUp reports whether the client has closed the connection. It is accurate at once: the
// kernel marks both ends together.
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

// attachedAs sets the session of a rank's claim.
func (s *Server) attachedAs(rank uint32, sess *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.ranks[rank]; c != nil {
		c.session = sess
	}
}

// unclaim ends the claim of a rank.
func (s *Server) unclaim(rank uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ranks[rank].over)
	delete(s.ranks, rank)
}
