// Package pmi is the process-management server of MPI programs. It speaks PMI-1, as the
// libraries of MPICH and Intel do over an inherited descriptor (PMI_FD); libraries that
// dial a port (PMI_PORT) connect by way of the launcher, which listens on the pod's
// loopback. Ranks put and get short texts, and barriers carry the texts between the pods
// (Tree). Launchers report the ends of processes, and ask when ranks may be started.
//
// A connection is admitted, greets with its rank (Server.greet), and belongs to the rank
// until it ends; connections of launchers do not greet. The server checks and bounds every
// byte of a rank before it uses it.
package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
)

// Gather exchanges data between pods: it sends own and returns the data of all pods, by
// pod.
type Gather func(ctx context.Context, own []byte) ([][]byte, error)

// Config configures a Server.
type Config struct {
	First, Count int   // world ranks of this pod
	Layout       []int // number of ranks by pod
	Machines     int   // number of machines of the pods' addresses
	Job          string
	Gather       Gather
	Meetings     *Meetings // nil: there are no meetings
	Reach        Reach
	// Within is how long another pod may take to serve a command; 0: 5 minutes. It is as
	// long as peers may take to start, up to 7 days, because a pod may wait for its image
	// or for the certificate of its sidecar. A command waits only while its agent is
	// connected.
	Within time.Duration
	// State returns how far the start of the sidecar is: what it waits for outside of its
	// pod (empty: nothing), whether it is ready, and a channel that is closed when that
	// changes. nil: it is ready.
	State func() (awaits string, ready bool, changed <-chan struct{})
	// Allow returns an error if the process that has connected may not; nil: every process
	// may.
	Allow func(net.Conn) error
	// Attached reports whether a rank has ever attached to the sidecar.
	Attached func(rank int) bool
	// Vanished reports whether a rank whose process has ended left without a detach.
	Vanished func(rank int) bool
	// Ended is called for a rank whose process has ended with code 0 while other ranks may
	// wait for more of its messages. It may be nil.
	Ended func(rank int)
	// Failed ends the job for a rank whose process has ended with a code other than 0.
	Failed func(rank int, code uint32)
	// JobFailed reports whether the job has failed. nil: it has not.
	JobFailed func() bool
	// Idle ends the job for a rank, of any pod, that has ended without MPI. It may be nil.
	Idle func(rank int)
	// Over ends the job for a rank, of any pod, that has ended while other ranks wait for
	// it in another MPI program. nil: they wait on.
	Over func(rank int)
	// Abort ends the job for a rank that aborts, with an exit code of 1 to 255.
	Abort func(rank int, code uint32)
	// Refused ends the job for a rank, of any pod, whose MPI cannot use Outrigger, with the
	// reason. It returns when the job has failed. nil: only the rank ends.
	Refused func(rank int, text string)
	Log     *slog.Logger
}

// Server serves the ranks of one pod.
type Server struct {
	cfg   Config
	ranks int
	ctx   context.Context
	stop  context.CancelCauseFunc
	wg    sync.WaitGroup

	complaints rate.Sometimes

	mu        sync.Mutex // guards what follows
	space     *space
	limiter   *admission.Limiter // connections that have not greeted
	launchers *admission.Limiter // connections of launchers, at a socket of their own
	conns     map[net.Conn]bool
	clients   map[int]*client
	fences    int       // number of fences in progress
	fencing   time.Time // time at which a fence last began while no other fence was in progress
	meetings  int
	waiting   []*client // ranks in the barrier
	init      map[int]bool
	loaded    bool              // a process of this pod has loaded an MPI
	local     bool              // the pod's ranks exchange messages by shared memory of their MPI
	finalize  map[int]time.Time // the time at which each rank entered MPI_Finalize, while it is there
	failed    error
	aborts    aborts
	idle      idle
	programs  programs
	gone      ranksOver

	held   *budget // budget of the bytes kept for fences; Meetings has its own
	offers offers  // launchers that run commands for other pods
}

// client is a connection of a rank or a launcher.
type client struct {
	conn     net.Conn
	rank     int
	known    bool            // the connection has greeted, or needs no greeting
	slot     *admission.Slot // the place of the connection until it has greeted
	finished bool
	ended    bool              // the rank's program has called finalize; the rank's next program may begin
	entered  time.Time         // time at which the rank entered the barrier
	aborted  bool              // the rank has requested the end of the job
	spawning map[string]string // fields received of an unfinished spawn request; nil: there is none
	launcher bool              // the connection was made to the launchers' socket
	gone     chan struct{}     // closed when all requests have been served and the connection has ended
}

// places returns the bound of the connections at one socket of the pod that have not
// greeted: all ranks at once, and the requests of launchers about them. Within silentHold,
// the time for which a silent connection keeps its place, as many can be served that a
// process which connects without end cannot fill the queue before the others. Each
// connection has a buffer of lineMax; all of them together take 4 MiB.
func (c *Config) places() int { return memory.LaunchSlots(c.Count) }

// silentHold is how long a connection that has sent nothing keeps its place: no MPI library
// tries again, and a rank may not get a CPU between connecting and its first request.
const silentHold = 100 * time.Millisecond

// placePause is the time between attempts to admit a connection while no place is free.
const placePause = 5 * time.Millisecond

// Bounds of how long a connection may take to greet, and to read an answer.
const (
	greetWithin = 5 * time.Second
	readWithin  = 5 * time.Second
)

var (
	errClosed  = errors.New("the sidecar ends")
	errUnread  = fmt.Errorf("the client has read no answer for %v", readWithin)
	errTooMany = errors.New("closed: too many connections, and it has not sent its rank")
)

// New returns a server.
func New(cfg Config) *Server {
	ctx, stop := context.WithCancelCause(context.Background())
	s := &Server{
		cfg: cfg, ctx: ctx, stop: stop, limiter: admission.New(cfg.places(), cfg.places()).SilentFor(silentHold), launchers: admission.New(cfg.places(), cfg.places()).SilentFor(silentHold),
		complaints: rate.Sometimes{Interval: time.Minute}, held: newBudget(cfg.Layout), conns: map[net.Conn]bool{}, clients: map[int]*client{}, init: map[int]bool{},
		idle: idle{ranks: map[int]bool{}, waits: -1}, programs: programs{ranks: map[int]*program{}}, gone: ranksOver{},
	}
	for _, n := range cfg.Layout {
		s.ranks += n
	}
	s.space = newSpace(mapping(cfg.Layout), spaceShare(cfg.Count, s.ranks))
	return s
}

// Serve serves ranks until l is closed. The sidecar must be ready.
func (s *Server) Serve(l net.Listener) error { return s.acceptFrom(l, false) }

func (s *Server) acceptFrom(l net.Listener, launcher bool) error {
	for {
		conn, err := admission.Accept(l.Accept, func(err error) { s.complain("a rank could not come in", err) })
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("pmi: accepting: %w", err)
		}
		s.receive(conn, launcher)
	}
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.stop(errClosed)
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // its goroutine ends
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// receive admits a connection, if it may connect.
func (s *Server) receive(conn net.Conn, launcher bool) {
	if s.cfg.Allow != nil {
		if err := s.cfg.Allow(conn); err != nil {
			s.complain("PMI connection refused", err)
			_ = conn.Close() // nothing was sent to it
			return
		}
	}
	at := s.limiter
	if launcher {
		at = s.launchers
	}
	var slot *admission.Slot
	for {
		if slot = at.Admit("", func() { _ = conn.Close() }); slot != nil || s.ctx.Err() != nil { // a closed connection ends its talk
			break
		}
		// All places are held by connections that are about to send a request.
		time.Sleep(placePause)
	}
	if slot == nil || !s.accept(&client{conn: conn, rank: -1, slot: slot, launcher: launcher, gone: make(chan struct{})}) {
		s.complain("PMI connection refused", errTooMany)
		_ = conn.Close() // nothing was sent to it
		return
	}
	if admission.HasData(conn) { // its goroutine may be late to notice the request
		slot.MarkActive()
	}
}

// complain logs, at most once a minute, an error that any process can cause at any rate.
func (s *Server) complain(what string, cause error) {
	s.complaints.Do(func() { s.cfg.Log.Warn(what+" (logged at most once a minute)", "cause", cause) })
}

// accept starts to serve a connection. It reports false if the server ends: it holds the
// lock so that Close either sees the connection or makes accept fail.
func (s *Server) accept(c *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.conns[c.conn] = true
	s.wg.Go(func() { s.serve(c) })
	return true
}

func (s *Server) serve(c *client) {
	defer close(c.gone)
	conn := c.conn
	err := s.talk(c)
	stayed := c.slot.Release() || c.known
	s.mu.Lock()
	delete(s.conns, conn)
	if s.clients[c.rank] == c {
		delete(s.clients, c.rank)
		s.endProgram(c)
	}
	s.aborts.leave(c)
	s.mu.Unlock()
	_ = conn.Close() // nothing more is written to it
	switch {
	case err == nil || s.ctx.Err() != nil:
	case !stayed:
		s.complain("PMI connection ended", errTooMany)
	case c.rank < 0:
		s.complain("PMI connection ended", err)
	default:
		s.cfg.Log.Warn("PMI connection ended", "rank", c.rank, "cause", err)
	}
}

// talk serves requests until the connection ends.
func (s *Server) talk(c *client) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(greetWithin)); err != nil {
		return err
	}
	if c.launcher {
		return s.question(c)
	}
	in := bufio.NewReaderSize(c.conn, lineMax)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("%w: longer than %d bytes", errLine, lineMax)
		case err != nil:
			return err
		}
		if own, err := s.spawn(c, string(line[:len(line)-1])); own {
			if err != nil {
				return err
			}
			continue
		}
		r, err := parse(string(line[:len(line)-1]))
		if err != nil {
			return err
		}
		switch {
		case r.cmd == "outrigger_fence":
			err = s.fence(c, r, in)
		case r.cmd == "outrigger_meet" && c.rank < 0:
			return s.meet(c, in)
		case r.cmd == "outrigger_exec" && c.rank < 0:
			return s.exec(c, r, in)
		case r.cmd == "outrigger_serve" && c.rank < 0:
			return s.offer(c, in)
		default:
			err = s.handle(c, r)
		}
		if err != nil {
			return err
		}
		if c.finished {
			return nil
		}
	}
}

// send sends a line and does not wait long for a client that does not read. Preconditions:
// s.mu is not held.
func (c *client) send(format string, a ...any) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(readWithin)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.conn, format+"\n", a...)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errUnread
	}
	return err
}

// rankOf parses a rank of this pod.
func (s *Server) rankOf(text string) (int, error) {
	rank, err := strconv.Atoi(text)
	if err != nil || rank < s.cfg.First || rank >= s.cfg.First+s.cfg.Count {
		return 0, fmt.Errorf("rank %q: this pod has ranks %d to %d", text, s.cfg.First, s.cfg.First+s.cfg.Count-1)
	}
	return rank, nil
}

// greet serves the first request of a rank's connection, which names the rank.
func (s *Server) greet(c *client, r request) error {
	rank, err := s.rankOf(r.fields["pmiid"])
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.clients[rank]
	taken := old != nil && !old.ended // otherwise the end of its connection is not yet noticed
	if !taken {
		s.clients[rank], c.rank = c, rank
	}
	s.mu.Unlock()
	if taken {
		return fmt.Errorf("rank %d is connected already", rank)
	}
	if err := c.admit(); err != nil {
		return err
	}
	return c.send("cmd=initack rc=0\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0", s.ranks, rank)
}

// admit admits a connection for good: its owner is known, and it may be silent for any
// time.
func (c *client) admit() error {
	if c.known {
		return nil
	}
	if !c.slot.Release() {
		return errTooMany
	}
	c.known = true
	return c.conn.SetReadDeadline(time.Time{})
}

// job answers a launcher: how many ranks each pod has, and which pod this is.
func (s *Server) job(c *client) error {
	_ = s.checkOwner(c) // any process may ask; the first one is the launcher (relay.go)
	layout := make([]string, len(s.cfg.Layout))
	for i, n := range s.cfg.Layout {
		layout[i] = strconv.Itoa(n)
	}
	return c.send("cmd=outrigger_job rc=0 name=%s pod=%d machines=%d layout=%s", s.cfg.Job, s.pod(), s.cfg.Machines, strings.Join(layout, ","))
}

// used answers a launcher: what is known about a rank.
func (s *Server) used(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	s.mu.Lock()
	init, loaded := s.init[rank], s.loaded
	s.mu.Unlock()
	vanished := s.cfg.Vanished(rank) // waits for the end of its session, which may undo its attachment
	return c.send("cmd=outrigger_rank rc=0 init=%d attached=%d vanished=%d loaded=%d", number(init), number(s.cfg.Attached(rank)), number(vanished), number(loaded))
}

// note stores a report of a process of the pod about its MPI (clientlib/c/check). The
// process does not wait for an answer.
func (s *Server) note(c *client, what *bool) error {
	s.mu.Lock()
	*what = true
	s.mu.Unlock()
	c.finished = true
	return nil
}

// finalizes serves the report of a rank that it is in MPI_Finalize, or has left it: Open
// MPI waits there in a fence, and the server learns of a fence only when all ranks of a pod
// are in it.
func (s *Server) finalizes(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.finished = true; r.fields["over"] == "1" {
		delete(s.finalize, rank)
		return nil
	}
	if s.finalize == nil {
		s.finalize = map[int]time.Time{}
	}
	s.finalize[rank] = time.Now()
	return nil
}

// Local reports whether messages between ranks of this pod use memory that their MPI
// shares, and not the sidecar.
func (s *Server) Local() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// hearOut bounds how long the end of a rank's process waits for the rank's last requests: a
// child process that has inherited the connection may keep it open.
const hearOut = time.Second

// Heard waits until all requests of a rank whose process has ended are served: its abort,
// which names the cause, precedes the end of the process.
func (s *Server) Heard(rank int) {
	s.mu.Lock()
	c := s.clients[rank]
	s.mu.Unlock()
	if c == nil {
		return
	}
	late := time.NewTimer(hearOut)
	defer late.Stop()
	select {
	case <-c.gone:
	case <-late.C:
	case <-s.ctx.Done():
	}
}

// badly serves a launcher's report that a rank has ended with a code other than 0. It answers
// after the failure is recorded, so that later reports count as its consequences.
func (s *Server) badly(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	code, err := strconv.ParseUint(r.fields["code"], 10, 8)
	if err != nil || code == 0 {
		return fmt.Errorf("%w: exit code %q", errLine, r.fields["code"])
	}
	s.Heard(rank)
	s.cfg.Failed(rank, uint32(code))
	return c.send("cmd=outrigger_failed rc=0")
}

// ended serves a launcher's report that a rank's process has ended with code 0. It answers
// when the consequences are known.
func (s *Server) ended(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	if s.cfg.Ended != nil {
		s.cfg.Ended(rank)
	}
	return c.send("cmd=outrigger_ended rc=0 vanished=%d", number(s.cfg.Vanished(rank)))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *Server) handle(c *client, r request) error {
	if c.rank < 0 {
		c.slot.MarkActive()
		switch r.cmd {
		case "initack":
			return s.greet(c, r)
		case "outrigger_rank":
			return s.used(c, r)
		case "outrigger_loaded":
			return s.note(c, &s.loaded)
		case "outrigger_local":
			return s.note(c, &s.local)
		case "outrigger_finalize":
			return s.finalizes(c, r)
		case "outrigger_idle":
			return s.idled(c, r)
		case "outrigger_failed":
			return s.badly(c, r)
		case "outrigger_ended":
			return s.ended(c, r)
		case "outrigger_over":
			return s.overOf(c, r)
		case "outrigger_state":
			return c.send("cmd=outrigger_state rc=0 failed=%d", number(s.cfg.JobFailed != nil && s.cfg.JobFailed()))
		case "outrigger_abort":
			return s.abortOf(c, r)
		case "outrigger_refused":
			return s.refused(c, r)
		case "outrigger_job":
			return s.job(c)
		case "outrigger_aborts":
			return s.watch(c, r)
		}
		return fmt.Errorf("%w: %q before initack", errLine, r.cmd)
	}
	switch r.cmd {
	case "init":
		if err := s.next(s.ctx, c); err != nil {
			return err
		}
		return c.send("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	case "get_maxes":
		return c.send("cmd=maxes rc=0 kvsname_max=%d keylen_max=%d vallen_max=%d", nameMax, keyMax, valueMax)
	case "get_appnum":
		return c.send("cmd=appnum rc=0 appnum=0")
	case "get_universe_size":
		return c.send("cmd=universe_size rc=0 size=%d", s.ranks)
	case "get_my_kvsname":
		return c.send("cmd=my_kvsname rc=0 kvsname=%s", s.cfg.Job)
	case "put":
		return s.put(c, r)
	case "get":
		return s.get(c, r)
	case "barrier_in":
		return s.enterBarrier(c)
	case "finalize":
		s.mu.Lock()
		s.endProgram(c)
		s.mu.Unlock()
		return c.send("cmd=finalize_ack rc=0")
	case "abort": // more requests may follow: MPICH relies on its launcher to kill the rank
		s.abort(c, r)
		return nil
	case "spawn":
		return s.refuseSpawn(c)
	case "publish_name", "unpublish_name", "lookup_name":
		return c.send("cmd=%s_result rc=-1 msg=names_are_not_offered", r.cmd[:len(r.cmd)-len("_name")])
	}
	return fmt.Errorf("%w: cmd=%q", errLine, r.cmd)
}

func (s *Server) put(c *client, r request) error {
	s.mu.Lock()
	err := s.space.put(c.rank, r.fields["key"], r.fields["value"])
	s.mu.Unlock()
	if err != nil {
		return c.send("cmd=put_result rc=-1 msg=%s", fold(err.Error()))
	}
	return c.send("cmd=put_result rc=0 msg=success")
}

func (s *Server) get(c *client, r request) error {
	s.mu.Lock()
	value, ok := s.space.get(r.fields["key"])
	s.mu.Unlock()
	if !ok {
		return c.send("cmd=get_result rc=-1 msg=key_not_found value=unknown")
	}
	return c.send("cmd=get_result rc=0 msg=success value=%s", value)
}

// enterBarrier serves a rank that enters the barrier. The last rank of the pod starts the
// exchange with the other pods.
func (s *Server) enterBarrier(c *client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		if w.rank == c.rank {
			return fmt.Errorf("%w: a second barrier_in before barrier_out", errLine)
		}
	}
	s.waiting, c.entered = append(s.waiting, c), time.Now()
	if len(s.waiting) < s.cfg.Count {
		return nil
	}
	own := s.space.export()
	s.wg.Go(func() { s.pass(own) })
	return nil
}

// pass completes the barrier after all ranks of the pod have entered it.
func (s *Server) pass(own []byte) {
	all, err := s.exchange(s.ctx, pieceKeys, own)
	waiting, err := s.admit(all, err)
	for _, c := range waiting {
		if err != nil {
			_ = c.conn.Close() // the rank's MPI library reports the closed connection
			continue
		}
		s.wg.Go(func() { // concurrently: one of them may not read
			if c.send("cmd=barrier_out rc=0") != nil { // the launcher reports a rank that has died
				_ = c.conn.Close()
			}
		})
	}
}

// endsOfOthers are the errors of a connection that the other side has ended.
var endsOfOthers = []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, unix.ECONNRESET, unix.EPIPE, errChildGone}

// severity returns the level at which a failed round is logged. The end of a connection
// follows from the end of a pod or of the job, whose cause is reported elsewhere.
func (s *Server) severity(err error) slog.Level {
	ended := slices.ContainsFunc(endsOfOthers, func(end error) bool { return errors.Is(err, end) })
	if ended || s.cfg.JobFailed != nil && s.cfg.JobFailed() {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// admit stores what all pods have put, and returns the ranks that wait for it.
func (s *Server) admit(all [][]byte, err error) ([]*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(all) && err == nil; i++ {
		err = s.space.admit(all[i])
	}
	s.space.passed()
	waiting := s.waiting
	s.waiting = nil
	if err != nil {
		if s.failed == nil && s.ctx.Err() == nil {
			s.failed = err
			s.cfg.Log.Log(s.ctx, s.severity(err), "the ranks of this pod cannot meet the others", "cause", err)
		}
	}
	return waiting, err
}
