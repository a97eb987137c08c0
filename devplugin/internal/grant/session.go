package grant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// session is one connection of a sidecar, served by one goroutine. Other sessions may
// write to its line.
type session struct {
	agent   *Agent
	conns   *podConns
	line    line
	process *process
	caller  *Caller
	joined  *member
}

// attend identifies the caller, and answers its requests.
func (s *session) attend(ctx context.Context) {
	err := s.identify(ctx)
	if s.process != nil {
		defer s.process.close()
	}
	if err != nil {
		s.refuse("", err)
		return
	}
	if !s.agent.broker.enter(s.caller) {
		s.refuse(s.caller.String(), fmt.Errorf("more than %d connections of one pod", connectionsPerPod))
		return
	}
	defer s.agent.broker.exit(s.caller)
	defer s.leave()
	for {
		m, f, err := grant.Receive(s.line.conn)
		if errors.Is(err, grant.ErrMessage) {
			s.refuse(s.caller.String(), err)
			return
		}
		if err == nil {
			err = s.answer(ctx, m, f)
		}
		if f != nil {
			_ = grant.Drop(f) // only ether has a descriptor, and has used it
		}
		if err != nil {
			return // the caller has gone or does not read, or the agent ends
		}
	}
}

// identify identifies the caller. The process must be alive afterwards; otherwise, the
// result may be about another process.
func (s *session) identify(ctx context.Context) (err error) {
	if s.process, err = peer(s.line.conn); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, identifyPatience)
	defer cancel()
	for _, turn := range []chan struct{}{s.conns.identifying, s.agent.identifying} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return errors.New("the agent is too busy to identify the caller; try again")
		}
	}
	if s.caller, err = s.agent.config.Who.Identify(ctx, s.process.pid); err != nil {
		return err
	}
	return s.process.alive()
}

// refuse refuses a caller: it sends the reason, and waits a moment for the caller to close
// the connection. If it closed at once, with a request unread, the caller's kernel
// could discard the reason.
func (s *session) refuse(caller string, cause error) {
	s.agent.record.refused(caller, opConnection, cause)
	if s.line.send(&grant.Message{Op: grant.End, Error: cause.Error()}, nil) != nil || s.line.conn.CloseWrite() != nil ||
		s.line.conn.SetReadDeadline(time.Now().Add(patience)) != nil {
		return // the caller does not read
	}
	for {
		_, f, err := grant.Receive(s.line.conn)
		if f != nil {
			_ = grant.Drop(f) // the request is not performed
		}
		if err != nil && !errors.Is(err, grant.ErrMessage) {
			return
		}
	}
}

// answer performs a request, which came with a descriptor if with is not nil. An error means
// that the answer could not be sent.
func (s *session) answer(ctx context.Context, m *grant.Message, with *os.File) error {
	out := &grant.Message{Op: m.Op, Pod: m.Pod}
	var f *os.File
	var what string
	var err error
	switch m.Op {
	case grant.Memlock:
		out.Bytes, err = s.raise(m.Bytes)
		what = fmt.Sprintf("process %d may lock %d bytes", s.process.pid, out.Bytes)
	case grant.Join:
		err = s.join(m.Pod)
		what = fmt.Sprintf("pod %d of job %s", m.Pod, s.caller.Job)
	case grant.Connect:
		f, err = s.connect(m.Pod)
		what = fmt.Sprintf("to pod %d of job %s", m.Pod, s.caller.Job)
	case grant.Ether:
		f, err = s.ether(ctx, with, out)
		what = fmt.Sprintf("packet socket for %s, ethertype %#x", out.Interface, grant.EtherType)
	default:
		err = fmt.Errorf("%q is not a request", m.Op)
	}
	if err != nil {
		s.agent.record.refused(s.caller.String(), m.Op, err)
		out.Error = err.Error()
	} else {
		s.agent.record.granted(s.caller.String(), m.Op, what)
	}
	err = s.line.send(out, f)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// raise checks the process before and after: prlimit(2) takes a number and no pidfd,
// and the caller must have had this number all the time.
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
	if s.joined != nil {
		return errors.New("this connection has joined already")
	}
	m := s.member(pod)
	if !s.agent.broker.join(m, &s.line) {
		return fmt.Errorf("pod %d of the job has joined by another connection", pod)
	}
	s.joined = &m
	return nil
}

func (s *session) member(pod int) member {
	return member{namespace: s.caller.Namespace, job: s.caller.Job, pod: pod}
}

func (s *session) leave() {
	if s.joined != nil {
		s.agent.broker.leave(*s.joined)
	}
}

// connect makes a pair of sockets, sends one end to the other sidecar, and returns the
// caller's end.
func (s *session) connect(pod int) (*os.File, error) {
	switch {
	case s.joined == nil:
		return nil, errors.New("join before connect")
	case s.joined.pod == pod:
		return nil, errors.New("a sidecar has no connection to itself")
	}
	other := s.agent.broker.find(s.member(pod))
	if other == nil {
		return nil, fmt.Errorf("pod %d of the job is not on this node, or has not joined yet", pod)
	}
	mine, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	err = other.send(&grant.Message{Op: grant.Incoming, Pod: s.joined.pod}, theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("the sidecar of pod %d does not take connections: %w", pod, err), mine.Close())
	}
	return mine, nil
}
