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

// A program that runs its own mpirun starts the mpirun's daemons in other pods by a process in
// the place of ssh (Agent of package remote; not the node's agent). The process sends the command
// to its own sidecar, which relays the bytes to the sidecar of the target pod, and that one relays
// them to a launcher that serves commands there:
//
//	cmd=outrigger_exec pod=P     from an agent
//	cmd=exec_result rc=0         the following bytes are between agent and server
//	cmd=exec_result rc=-1 msg=M  the command cannot be run
//
//	cmd=outrigger_serve          from a server, once for each command
//	cmd=exec                     the following bytes are between agent and server
//
// Other sidecars of the job may pass commands to this one (ServeExec). Of the processes of this
// pod, only those of the user who first asked for the job's layout, which is the launcher's, may do that:
// the containers of a pod may run as different users.

// Reach makes an authenticated connection to another pod's sidecar, which passes it to its
// ServeExec.
type Reach func(ctx context.Context, pod int) (net.Conn, error)

// execsMax returns the most commands that are relayed at once.
func (c *Config) execsMax() int { return memory.LaunchCommands(len(c.Layout)) }

// reachWithin is how long another pod may take to serve a command, if the job does not
// configure it: the pod's image or its certificate may not have arrived yet.
const reachWithin = 5 * time.Minute

// within returns how long another pod may take. A job with an issuer allows a week, because
// only events outside of an absent pod end its start (Config.Within). A command that waits
// so long ends with its agent, which ends with its mpirun, and there are at most execsMax
// commands.
func (s *Server) within() time.Duration { return cmp.Or(s.cfg.Within, reachWithin) }

var (
	errExecs  = errors.New("too many commands for other pods are under way")
	errOffers = errors.New("a launcher serves commands in this pod already")
)

// offers holds the launcher that waits for a command; at most one waits at a time.
type offers struct {
	mu      sync.Mutex
	waiting *offer
	came    chan struct{} // closed when a launcher waits
	under   int           // commands that are relayed, or wait
	owner   *uint32       // the user that may run commands; nil: none has asked
}

var errUser = errors.New("only the user that started the ranks may run commands in this pod")

// checkOwner returns an error unless c belongs to the user that was the first to ask for
// the job's layout: the launcher asks before it starts a process.
func (s *Server) checkOwner(c *client) error {
	unixConn, ok := c.conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	who, err := admission.Credentials(unixConn)
	if err != nil {
		return fmt.Errorf("reading the user of the connection: %w", err)
	}
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	if s.offers.owner == nil {
		s.offers.owner = &who.Uid
	}
	if *s.offers.owner != who.Uid {
		return fmt.Errorf("%w: that is user %d, not user %d", errUser, *s.offers.owner, who.Uid)
	}
	return nil
}

// offer is a launcher that waits for a command.
type offer struct {
	conn   net.Conn
	in     *bufio.Reader // of conn
	handed chan struct{} // closed when the offer belongs to its taker
	here   bool          // the launcher was still connected when handed was closed
	over   chan struct{} // closed by the taker
}

// beginCommand counts a command, or returns an error if there are too many.
func (s *Server) beginCommand() error {
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	if s.offers.under >= s.cfg.execsMax() {
		return fmt.Errorf("%w: %d", errExecs, s.offers.under)
	}
	s.offers.under++
	return nil
}

func (s *Server) endCommand() {
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	s.offers.under--
}

// offer serves a launcher's connection until its command has ended.
func (s *Server) offer(c *client, in *bufio.Reader) error {
	if err := cmp.Or(s.checkOwner(c), c.admit()); err != nil {
		return err
	}
	o := &offer{conn: c.conn, in: in, handed: make(chan struct{}), over: make(chan struct{})}
	if !s.offers.put(o) {
		return errOffers
	}
	// A launcher sends nothing before it has a command: Peek returns when the launcher
	// goes, or when the taker sets the deadline.
	_, err := in.Peek(1)
	if s.offers.withdraw(o) {
		return nil // the launcher has gone, or the server ends
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

// await waits for a launcher that serves commands.
func (f *offers) await(ctx context.Context) (*offer, error) {
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
		_ = o.conn.SetReadDeadline(time.Unix(1, 0)) // the goroutine of offer returns from Peek
		if <-o.handed; o.here {
			return o, nil
		}
	}
}

// exec serves an agent's connection until its command has ended.
func (s *Server) exec(c *client, r request, in *bufio.Reader) error {
	pod, err := strconv.Atoi(r.fields["pod"])
	if err != nil || pod < 0 || pod >= len(s.cfg.Layout) {
		return c.refuse(fmt.Errorf("the job has %d pods: want pod-0 to pod-%d", len(s.cfg.Layout), len(s.cfg.Layout)-1))
	}
	if err := s.checkOwner(c); err != nil {
		return c.refuse(err)
	}
	if err := c.admit(); err != nil {
		return err
	}
	agent := &bufferedConn{Conn: c.conn, in: in}
	there, stop := whileThere(s.ctx, c.conn)
	defer stop()
	if pod == s.pod() {
		return s.serveExec(s.ctx, there, func() error { stop(); return nil }, agent)
	}
	if err := s.beginCommand(); err != nil {
		return c.refuse(err)
	}
	defer s.endCommand()
	ctx, cancel := context.WithTimeoutCause(there, s.within(), fmt.Errorf("pod %d has not answered for %v", pod, s.within()))
	conn, err := s.cfg.Reach(ctx, pod)
	cancel()
	if err != nil {
		return c.refuse(err)
	}
	defer func() { _ = conn.Close() }() // both sides have received everything
	answer := bufio.NewReaderSize(conn, answerAhead)
	if err := answered(there, conn, answer); err != nil {
		return c.refuse(err)
	}
	stop()
	relay(s.ctx, agent, &bufferedConn{Conn: conn, in: answer})
	return nil
}

// answerAhead is how much of an answer is read before it is relayed.
const answerAhead = 512

// answered waits for the other pod's answer to a command. No byte of the command is sent
// there before: the pod notices by the end of the connection that the agent has gone.
func answered(ctx context.Context, conn net.Conn, answer *bufio.Reader) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	_, err := answer.Peek(1)
	if !stop() {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return nil // relay reports it
	}
	return err
}

// goneEvery is the interval of the checks whether a waiting agent is still connected.
const goneEvery = time.Second

var errAgentGone = errors.New("the agent of the command has gone")

// whileThere returns a context that ends when the other end of a local connection is
// closed, until stop is called. Bytes of the other end are not read.
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

// refuse tells an agent that its command cannot be run. It reads what the agent has sent
// already: otherwise closing the connection could discard the answer.
func (c *client) refuse(err error) error {
	said := c.send("cmd=exec_result rc=-1 msg=%s", fold(err.Error()))
	if said == nil && closeWrite(c.conn) == nil && c.conn.SetReadDeadline(time.Now().Add(readWithin)) == nil {
		_, _ = io.Copy(io.Discard, c.conn)
	}
	return errors.Join(err, said)
}

// pod returns the number of this pod.
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

// ServeExec runs a command of another pod in this pod: conn is the connection of its agent,
// whose sidecar relays nothing before the answer. It returns when the command has ended.
func (s *Server) ServeExec(ctx context.Context, conn net.Conn) error {
	in := bufio.NewReaderSize(conn, answerAhead)
	there, gone := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := in.Peek(1); err != nil { // otherwise a sidecar of an earlier release relays the command
			gone(errAgentGone)
		}
	}()
	settle := func() error {
		err := conn.SetReadDeadline(time.Unix(1, 0))
		<-ended
		gone(nil)
		return cmp.Or(err, conn.SetReadDeadline(time.Time{}))
	}
	return s.serveExec(ctx, there, settle, &bufferedConn{Conn: conn, in: in})
}

// serveExec runs a command in this pod. It waits for a launcher while the agent is
// connected, and calls settle before it reads what the agent sends.
func (s *Server) serveExec(ctx, there context.Context, settle func() error, conn *bufferedConn) error {
	agent := &client{conn: conn}
	if err := s.beginCommand(); err != nil {
		return agent.refuse(cmp.Or(err, settle()))
	}
	defer s.endCommand()
	absent := fmt.Errorf("no launcher has served commands in this pod for %v: start all pods with the same command line", s.within())
	soon, cancel := context.WithTimeoutCause(there, s.within(), absent)
	o, err := s.offers.await(soon)
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
	if err := agent.send("cmd=exec_result rc=0"); err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Time{}); err != nil { // an agent may read slowly
		return err
	}
	relay(ctx, conn, &bufferedConn{Conn: o.conn, in: o.in})
	return nil
}
