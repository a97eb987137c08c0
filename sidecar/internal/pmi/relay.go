package pmi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
)

// A program that brings its own mpirun starts its daemons in other pods by an agent
// (package remote). The agent asks its own sidecar, which carries its bytes to the
// sidecar of the pod that is meant, and that one to somebody who serves there:
//
//	cmd=outrigger_exec pod=P     of an agent
//	cmd=exec_result rc=0         what follows is between agent and server
//	cmd=exec_result rc=-1 msg=M  it cannot be
//
//	cmd=outrigger_serve          of a server, once for each command
//	cmd=exec                     what follows is between agent and server
//
// The sidecars of the job may do either, and of those who may attach the user whose
// launcher has asked first: users of one container are not one.

// Reach makes an authenticated connection to another pod's sidecar, which gives it
// to its ServeExec.
type Reach func(ctx context.Context, pod int) (net.Conn, error)

// execsMax bounds the commands that are carried at once.
func (c *Config) execsMax() int { return memory.LaunchCommands(len(c.Layout)) }

// reachWithin is how long a pod may take in which another one wants to start something,
// where the job does not say: its image may still be on its way, or its certificate.
const reachWithin = 5 * time.Minute

// within is how long a pod may take. A job with an issuer gives a week, since nothing outside
// of a pod that is away ends its start (Config.Within). What waits so long ends with its agent,
// which is an mpirun's, and there are execsMax of them.
func (s *Server) within() time.Duration { return cmp.Or(s.cfg.Within, reachWithin) }

var (
	errExecs  = errors.New("too many commands for other pods are under way")
	errOffers = errors.New("somebody waits for commands in this pod already")
)

// offers are those who serve commands; one waits at a time.
type offers struct {
	mu      sync.Mutex
	waiting *offer
	came    chan struct{} // closed when there is one
	under   int           // commands that are carried, or wait
	owner   *uint32       // the user who may, once somebody has asked
}

var errUser = errors.New("commands of this pod are those of the user who started the ranks")

// mine reports whether c is of the user who was the first to ask for the job's place:
// the launcher does, before it starts anything.
func (s *Server) mine(c *client) error {
	unixConn, ok := c.conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	who, err := admission.Credentials(unixConn)
	if err != nil {
		return fmt.Errorf("whose connection it is: %w", err)
	}
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	if s.offers.owner == nil {
		s.offers.owner = &who.Uid
	}
	if *s.offers.owner != who.Uid {
		return fmt.Errorf("%w: of %d, not of %d", errUser, *s.offers.owner, who.Uid)
	}
	return nil
}

// offer is a launcher that waits for a command.
type offer struct {
	conn   net.Conn
	in     *bufio.Reader // of conn
	handed chan struct{} // closed when it is its taker's
	here   bool          // with handed: it is still there
	over   chan struct{} // closed by its taker
}

// begin counts a command.
func (s *Server) begin() error {
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	if s.offers.under >= s.cfg.execsMax() {
		return fmt.Errorf("%w: %d", errExecs, s.offers.under)
	}
	s.offers.under++
	return nil
}

func (s *Server) done() {
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	s.offers.under--
}

// offer is a launcher's connection until a command of it has ended.
func (s *Server) offer(c *client, in *bufio.Reader) error {
	if err := cmp.Or(s.mine(c), c.enter()); err != nil {
		return err
	}
	o := &offer{conn: c.conn, in: in, handed: make(chan struct{}), over: make(chan struct{})}
	if !s.offers.put(o) {
		return errOffers
	}
	// A launcher says nothing before it has a command: this ends when it goes, or
	// when its taker makes it end.
	_, err := in.Peek(1)
	if s.offers.withdraw(o) {
		return nil // it has gone, or the server ends
	}
	o.here = errors.Is(err, os.ErrDeadlineExceeded) && c.conn.SetReadDeadline(time.Time{}) == nil
	close(o.handed)
	if o.here {
		<-o.over
	}
	return nil
}

func (f *offers) put(o *offer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting != nil {
		return false
	}
	f.waiting = o
	if f.came != nil {
		close(f.came)
		f.came = nil
	}
	return true
}

// withdraw reports whether o had not been taken.
func (f *offers) withdraw(o *offer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting != o {
		return false
	}
	f.waiting = nil
	return true
}

// take waits for somebody who serves.
func (f *offers) take(ctx context.Context) (*offer, error) {
	for {
		f.mu.Lock()
		o, came := f.waiting, f.came
		f.waiting = nil
		if o == nil && came == nil {
			came = make(chan struct{})
			f.came = came
		}
		f.mu.Unlock()
		if o == nil {
			select {
			case <-came:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		_ = o.conn.SetReadDeadline(time.Unix(1, 0)) // its goroutine lets it go
		if <-o.handed; o.here {
			return o, nil
		}
	}
}

// exec is an agent's connection, until its command has ended.
func (s *Server) exec(c *client, r request, in *bufio.Reader) error {
	pod, err := strconv.Atoi(r.fields["pod"])
	if err != nil || pod < 0 || pod >= len(s.cfg.Layout) {
		return c.refuse(fmt.Errorf("the job has %d pods: want pod-0 to pod-%d", len(s.cfg.Layout), len(s.cfg.Layout)-1))
	}
	if err := s.mine(c); err != nil {
		return c.refuse(err)
	}
	if err := c.enter(); err != nil {
		return err
	}
	agent := &joint{Conn: c.conn, in: in}
	there, stop := whileThere(s.ctx, c.conn)
	defer stop()
	if pod == s.pod() {
		return s.serveExec(s.ctx, there, func() error { stop(); return nil }, agent)
	}
	if err := s.begin(); err != nil {
		return c.refuse(err)
	}
	defer s.done()
	ctx, cancel := context.WithTimeoutCause(there, s.within(), fmt.Errorf("pod %d has not answered for %v", pod, s.within()))
	conn, err := s.cfg.Reach(ctx, pod)
	cancel()
	if err != nil {
		return c.refuse(err)
	}
	defer func() { _ = conn.Close() }() // both sides have had all
	answer := bufio.NewReaderSize(conn, answerAhead)
	if err := answered(there, conn, answer); err != nil {
		return c.refuse(err)
	}
	stop()
	carry(s.ctx, agent, &joint{Conn: conn, in: answer})
	return nil
}

// answerAhead is how much of an answer is read before it is carried.
const answerAhead = 512

// answered waits for another pod to say what becomes of a command. Nothing of the command goes
// there before: that pod sees by the end of the connection that the agent is gone.
func answered(ctx context.Context, conn net.Conn, answer *bufio.Reader) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	_, err := answer.Peek(1)
	if !stop() {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return nil // carry says so
	}
	return err
}

// goneEvery is how often a sidecar looks whether an agent that waits is still there.
const goneEvery = time.Second

var errAgentGone = errors.New("the agent of the command has gone")

// whileThere is a context that ends when the other end of a local connection is closed, until
// stop. What that end has said is not read.
func whileThere(ctx context.Context, conn net.Conn) (_ context.Context, stop func()) {
	there, cancel := context.WithCancelCause(ctx)
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return there, func() { cancel(nil) }
	}
	raw, err := local.SyscallConn()
	if err != nil {
		cancel(err)
		return there, func() {}
	}
	go func() {
		t := time.NewTicker(goneEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-there.Done():
				return
			}
			gone := true
			if err := raw.Control(func(fd uintptr) {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
				n, err := unix.Poll(p, 0)
				gone = err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
			}); err != nil || gone {
				cancel(errAgentGone)
				return
			}
		}
	}()
	return there, func() { cancel(nil) }
}

// refuse answers an agent that its command cannot be run. What it has said already
// is read: else closing the connection could take the answer away.
func (c *client) refuse(err error) error {
	said := c.say("cmd=exec_result rc=-1 msg=%s", fold(err.Error()))
	if said == nil && closeWrite(c.conn) == nil && c.conn.SetReadDeadline(time.Now().Add(readWithin)) == nil {
		_, _ = io.Copy(io.Discard, c.conn)
	}
	return errors.Join(err, said)
}

// pod is this one's number.
func (s *Server) pod() int {
	first := 0
	for i, n := range s.cfg.Layout {
		if first == s.cfg.First && n == s.cfg.Count {
			return i
		}
		first += n
	}
	return -1
}

// ServeExec is a command of another pod for this one: conn is its agent's, of which its sidecar
// brings nothing before the answer. It returns when the command has ended.
func (s *Server) ServeExec(ctx context.Context, conn net.Conn) error {
	in := bufio.NewReaderSize(conn, answerAhead)
	there, gone := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := in.Peek(1); err != nil { // else a sidecar of an earlier release brings the command
			gone(errAgentGone)
		}
	}()
	settle := func() error {
		err := conn.SetReadDeadline(time.Unix(1, 0))
		<-ended
		gone(nil)
		return cmp.Or(err, conn.SetReadDeadline(time.Time{}))
	}
	return s.serveExec(ctx, there, settle, &joint{Conn: conn, in: in})
}

// serveExec is a command for this pod. It waits for a launcher while its agent is there, and
// calls settle before it reads what the agent says.
func (s *Server) serveExec(ctx, there context.Context, settle func() error, conn *joint) error {
	agent := &client{conn: conn}
	if err := s.begin(); err != nil {
		return agent.refuse(cmp.Or(err, settle()))
	}
	defer s.done()
	absent := fmt.Errorf("no launcher serves commands in this pod for %v: has it been started by the same line?", s.within())
	soon, cancel := context.WithTimeoutCause(there, s.within(), absent)
	o, err := s.offers.take(soon)
	cancel()
	if err == nil {
		defer close(o.over)
	}
	if err := cmp.Or(err, settle()); err != nil {
		return agent.refuse(err)
	}
	if _, err := fmt.Fprintln(o.conn, "cmd=exec"); err != nil {
		return agent.refuse(fmt.Errorf("the launcher of this pod has gone: %w", err))
	}
	if err := agent.say("cmd=exec_result rc=0"); err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Time{}); err != nil { // an agent may read slowly
		return err
	}
	carry(ctx, conn, &joint{Conn: o.conn, in: o.in})
	return nil
}
