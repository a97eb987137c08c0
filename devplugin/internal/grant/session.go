package grant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// session is one connection of a sidecar, served by one goroutine.
type session struct {
	agent   *Agent
	conn    *net.UnixConn
	process *process
	caller  *Caller
	seat    *seat // after join
}

// identify finds out who is there. The process must be alive afterwards, so
// that what was found is about it.
func (s *session) identify(ctx context.Context) (err error) {
	if s.process, err = peer(s.conn); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, identifyPatience)
	defer cancel()
	if s.caller, err = s.agent.config.Who.Identify(ctx, s.process.pid); err != nil {
		return err
	}
	return s.process.alive()
}

// turnAway says why and lets the connection end. It waits for the request, to
// answer to its operation, but not for long: who is refused must not hold one
// of the connections.
func (s *session) turnAway(cause error) {
	op := grant.Memlock
	if s.conn.SetReadDeadline(time.Now().Add(requestPatience)) == nil {
		if m, f, err := grant.Receive(s.conn); err == nil {
			op = m.Op
			if f != nil {
				_ = f.Close() // no request has a descriptor
			}
		}
	}
	_ = grant.Send(s.conn, &grant.Message{Version: grant.Version, Op: op, Error: cause.Error()}, nil) // who does not listen misses it
}

// requestPatience is how long a refused caller may take to say what it wanted.
const requestPatience = time.Second

// answer performs a request. An error means that the answer could not be sent.
func (s *session) answer(m *grant.Message) error {
	out := &grant.Message{Version: grant.Version, Op: m.Op, Pod: m.Pod}
	var f *os.File
	var err error
	switch m.Op {
	case grant.Memlock:
		out.Bytes, err = s.raise(m.Bytes)
	case grant.Join:
		err = s.join(m.Pod)
	case grant.Connect:
		f, err = s.connect(m.Pod)
	default:
		err = fmt.Errorf("%q is not a request", m.Op)
	}
	log := s.agent.config.Log.With("caller", s.caller.String(), "op", m.Op, "pid", s.process.pid)
	if err != nil {
		s.agent.refused.Add(1)
		log.Warn("refused", "cause", err)
		out.Error = err.Error()
	} else {
		s.agent.granted.Add(1)
		log.Info("granted", "bytes", out.Bytes, "to", m.Pod)
	}
	err = grant.Send(s.conn, out, f)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

func (s *session) raise(n uint64) (uint64, error) {
	if err := s.process.alive(); err != nil {
		return 0, err
	}
	n, err := s.agent.config.Limiter.Raise(s.process.pid, min(n, s.agent.config.MemlockMax))
	return n, errors.Join(err, s.process.alive())
}

func (s *session) join(pod int) error {
	if s.caller.Job == "" {
		return errors.New("the pod has no job label")
	}
	if s.seat != nil {
		return errors.New("this connection has joined already")
	}
	seat := &seat{conn: s.conn, member: s.member(pod)}
	if !s.agent.broker.join(seat) {
		return fmt.Errorf("pod %d of the job has joined by another connection", pod)
	}
	s.seat = seat
	return nil
}

func (s *session) member(pod int) member {
	return member{namespace: s.caller.Namespace, job: s.caller.Job, pod: pod}
}

func (s *session) leave() {
	if s.seat != nil {
		s.agent.broker.leave(s.seat)
	}
}

// eventPatience is how long a sidecar may leave an event unread (§5).
const eventPatience = time.Second

// connect makes a pair of sockets, gives one end to the other sidecar and
// returns the caller's.
func (s *session) connect(pod int) (*os.File, error) {
	switch {
	case s.seat == nil:
		return nil, errors.New("join before connect")
	case s.seat.member.pod == pod:
		return nil, errors.New("a sidecar has no connection to itself")
	}
	other := s.agent.broker.find(s.member(pod))
	if other == nil {
		return nil, fmt.Errorf("pod %d of the job is not on this node", pod)
	}
	mine, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	err = other.tell(&grant.Message{Version: grant.Version, Op: grant.Incoming, Pod: s.seat.member.pod}, theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("the sidecar of pod %d does not take connections: %w", pod, err), mine.Close())
	}
	return mine, nil
}
