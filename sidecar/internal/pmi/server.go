// Package pmi is the process-management server of MPI programs: PMI-1, as the
// libraries of MPICH and Intel speak it over a descriptor that they inherit
// (PMI_FD). Those that dial a port (PMI_PORT) come by way of the launcher, which
// listens on the pod's loopback. Ranks put and get short texts, and barriers carry them
// between the pods (Tree).
//
// Every byte that a rank writes is bounded and checked before it is used.
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

// Gather exchanges data between pods: this pod's for everybody's, by pod.
type Gather func(ctx context.Context, own []byte) ([][]byte, error)

// Config of a Server.
type Config struct {
	First, Count int   // world ranks of this pod
	Layout       []int // ranks by pod
	Machines     int   // that the pods have addresses of
	Job          string
	Gather       Gather
	Meetings     *Meetings // nil: there are none
	Reach        Reach
	// Within is how long another pod may take to serve a command; 0: 5 minutes. It is as long
	// as peers may take to start: up to 7 days, since the image of a pod, or the certificate of
	// its sidecar, may be waited for. Only an agent that is there waits.
	Within time.Duration
	// State is how far the sidecar is that starts: what it waits for outside of its pod
	// (empty: for nothing), whether it is ready, and a channel that is closed when that
	// changes. nil: it is ready.
	State func() (awaits string, ready bool, changed <-chan struct{})
	// Allow says why who has connected may not; nil: everybody may.
	Allow func(net.Conn) error
	// Attached reports whether a rank has ever attached to the sidecar.
	Attached func(rank int) bool
	// Vanished reports whether a rank whose process has ended left without a goodbye.
	Vanished func(rank int) bool
	// Ended hears of a rank whose process has ended with code 0, of which the others may wait
	// for more. nil: no effect.
	Ended func(rank int)
	// Failed ends the job for a rank whose process has ended badly, with such a code.
	Failed func(rank int, code uint32)
	// JobFailed reports whether the job has failed. nil: it has not.
	JobFailed func() bool
	// Idle ends the job for a rank, of any pod, that has ended without MPI. nil: nobody does.
	Idle func(rank int)
	// Over ends the job for a rank, of any pod, that has ended, and that others wait for in
	// another MPI program. nil: they wait on.
	Over func(rank int)
	// Abort ends the job: a rank asks for it, with an exit code of 1 to 255.
	Abort func(rank int, code uint32)
	// Refused ends the job for a rank, of any pod, whose MPI cannot use Outrigger, with the reason.
	// It returns when the job has failed. nil: the rank ends alone.
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
	limiter   *admission.Limiter // of those who have not said which rank they are
	launchers *admission.Limiter // of launchers, at a socket of their own
	conns     map[net.Conn]bool
	clients   map[int]*client
	fences    int       // under way
	fencing   time.Time // since when
	meetings  int
	waiting   []*client // in the barrier
	init      map[int]bool
	loaded    bool              // a process of this pod has loaded an MPI
	local     bool              // its ranks talk by shared memory of their MPI's
	finalize  map[int]time.Time // ranks in MPI_Finalize, and since when
	failed    error
	aborts    aborts
	idle      idle
	programs  programs
	gone      ranksOver

	held   *budget // of fences
	offers offers  // of those who run commands for other pods
}

// client is a rank's connection.
type client struct {
	conn     net.Conn
	rank     int
	known    bool            // who it is
	slot     *admission.Slot // until it has said which rank it is
	finished bool
	ended    bool              // its program has finalized; the next one may begin
	entered  time.Time         // the barrier
	aborted  bool              // has asked for the end of the job
	spawning map[string]string // what it says of processes that it wants; nil: nothing
	launcher bool              // it asks what launchers ask, and nothing of process management
	gone     chan struct{}     // closed when all that it has said is heard, and its connection has ended
}

// places bounds the connections of a pod at one socket that have not said which rank they are:
// all ranks at once, and the launcher's questions about them. So many come and go within what a
// silent one keeps its place for (limiter) that a process which connects without end fills no
// queue before others. Each has a buffer of lineMax: 4 MiB with all that belongs to it.
func (c *Config) places() int { return memory.LaunchPlaces(c.Count) }

// silentHold is how long a connection keeps its place that has said nothing: no library of an
// MPI tries again, and a rank may not get a processor between its connecting and its first word.
const silentHold = 100 * time.Millisecond

// placePause is how long a newcomer waits for a place to become free.
const placePause = 5 * time.Millisecond

// How long somebody may take to say who it is, and to read an answer.
const (
	greetWithin = 5 * time.Second
	readWithin  = 5 * time.Second
)

var (
	errClosed = errors.New("the sidecar ends")
	errUnread = fmt.Errorf("it has read no answer for %v", readWithin)
	errCrowd  = errors.New("sent away: too many connections, and it has not said which rank it is")
)

// New makes a server.
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

// Serve accepts ranks until l is closed. The sidecar is ready.
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

// Close ends all connections and waits for them.
func (s *Server) Close() {
	s.stop(errClosed)
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // its goroutine ends
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// receive gives a connection a place in the limiter, if it may be here.
func (s *Server) receive(conn net.Conn, launcher bool) {
	if s.cfg.Allow != nil {
		if err := s.cfg.Allow(conn); err != nil {
			s.complain("PMI connection refused", err)
			_ = conn.Close() // it has been told nothing
			return
		}
	}
	at := s.limiter
	if launcher {
		at = s.launchers
	}
	var slot *admission.Slot
	for {
		if slot = at.Admit("", func() { _ = conn.Close() }); slot != nil || s.ctx.Err() != nil { // its talk ends
			break
		}
		// All have only just come, and are about to speak.
		time.Sleep(placePause)
	}
	if slot == nil || !s.accept(&client{conn: conn, rank: -1, slot: slot, launcher: launcher, gone: make(chan struct{})}) {
		s.complain("PMI connection refused", errCrowd)
		_ = conn.Close() // as above
		return
	}
	if admission.HasData(conn) { // while it waited: its goroutine may come late to that
		slot.MarkActive()
	}
}

// complain is for what anybody can make happen as often as they like.
func (s *Server) complain(what string, cause error) {
	s.complaints.Do(func() { s.cfg.Log.Warn(what+" (told at most once a minute)", "cause", cause) })
}

// accept serves a connection; false: the server ends. Who waits for all that are served
// has had the lock before.
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
		s.over(c)
	}
	s.aborts.leave(c)
	s.mu.Unlock()
	_ = conn.Close() // nothing is written on it any more
	switch {
	case err == nil || s.ctx.Err() != nil:
	case !stayed:
		s.complain("PMI connection ended", errCrowd)
	case c.rank < 0:
		s.complain("PMI connection ended", err)
	default:
		s.cfg.Log.Warn("PMI connection ended", "rank", c.rank, "cause", err)
	}
}

// talk answers requests until the connection ends.
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

// say never waits long for who does not read. Preconditions: s.mu is not held.
func (c *client) say(format string, a ...any) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(readWithin)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.conn, format+"\n", a...)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errUnread
	}
	return err
}

// rankOf reads a rank of this pod.
func (s *Server) rankOf(text string) (int, error) {
	rank, err := strconv.Atoi(text)
	if err != nil || rank < s.cfg.First || rank >= s.cfg.First+s.cfg.Count {
		return 0, fmt.Errorf("rank %q: this pod has ranks %d to %d", text, s.cfg.First, s.cfg.First+s.cfg.Count-1)
	}
	return rank, nil
}

// greet is the first request of a connection: who it is.
func (s *Server) greet(c *client, r request) error {
	rank, err := s.rankOf(r.fields["pmiid"])
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.clients[rank]
	taken := old != nil && !old.ended // else its end is still to be heard
	if !taken {
		s.clients[rank], c.rank = c, rank
	}
	s.mu.Unlock()
	if taken {
		return fmt.Errorf("rank %d is connected already", rank)
	}
	if err := c.enter(); err != nil {
		return err
	}
	return c.say("cmd=initack rc=0\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0", s.ranks, rank)
}

// enter takes a connection out of the limiter: it is known who it is, and may say
// nothing for as long as it likes.
func (c *client) enter() error {
	if c.known {
		return nil
	}
	if !c.slot.Release() {
		return errCrowd
	}
	c.known = true
	return c.conn.SetReadDeadline(time.Time{})
}

// job answers the launcher: how many ranks each pod has, and which one this is.
func (s *Server) job(c *client) error {
	_ = s.mine(c) // anybody may know; the first one is the launcher (relay.go)
	layout := make([]string, len(s.cfg.Layout))
	for i, n := range s.cfg.Layout {
		layout[i] = strconv.Itoa(n)
	}
	return c.say("cmd=outrigger_job rc=0 name=%s pod=%d machines=%d layout=%s", s.cfg.Job, s.pod(), s.cfg.Machines, strings.Join(layout, ","))
}

// Used answers the launcher: what became of a rank.
func (s *Server) used(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	s.mu.Lock()
	init, loaded := s.init[rank], s.loaded
	s.mu.Unlock()
	vanished := s.cfg.Vanished(rank) // waits for the end of its session, which may undo its attachment
	return c.say("cmd=outrigger_rank rc=0 init=%d attached=%d vanished=%d loaded=%d", number(init), number(s.cfg.Attached(rank)), number(vanished), number(loaded))
}

// note keeps what a process of the pod tells about its MPI (clientlib/c/check). The process does
// not wait for an answer.
func (s *Server) note(c *client, what *bool) error {
	s.mu.Lock()
	*what = true
	s.mu.Unlock()
	c.finished = true
	return nil
}

// finalizes hears of a rank that it is in MPI_Finalize, or has been: Open MPI waits there by a
// fence, of which a pod is told when all its ranks are in it.
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

// Local reports whether messages between ranks of this pod go by memory that their MPI shares, and
// not by the sidecar.
func (s *Server) Local() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// hearOut is how long the end of a rank's process waits for what the rank has said before: a child
// that has its connection may keep it open.
const hearOut = time.Second

// Heard waits until all is heard that a rank has said whose process has ended: its abort, which
// names the cause, precedes the end of the process.
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

// badly hears of the launcher that a rank has ended badly, and answers when all that
// follows from that comes later.
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
	return c.say("cmd=outrigger_failed rc=0")
}

// ended hears of the launcher that a rank's process has ended with code 0, and answers when
// what follows from that is known.
func (s *Server) ended(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	if s.cfg.Ended != nil {
		s.cfg.Ended(rank)
	}
	return c.say("cmd=outrigger_ended rc=0 vanished=%d", number(s.cfg.Vanished(rank)))
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
			return c.say("cmd=outrigger_state rc=0 failed=%d", number(s.cfg.JobFailed != nil && s.cfg.JobFailed()))
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
		return c.say("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	case "get_maxes":
		return c.say("cmd=maxes rc=0 kvsname_max=%d keylen_max=%d vallen_max=%d", nameMax, keyMax, valueMax)
	case "get_appnum":
		return c.say("cmd=appnum rc=0 appnum=0")
	case "get_universe_size":
		return c.say("cmd=universe_size rc=0 size=%d", s.ranks)
	case "get_my_kvsname":
		return c.say("cmd=my_kvsname rc=0 kvsname=%s", s.cfg.Job)
	case "put":
		return s.put(c, r)
	case "get":
		return s.get(c, r)
	case "barrier_in":
		return s.enter(c)
	case "finalize":
		s.mu.Lock()
		s.over(c)
		s.mu.Unlock()
		return c.say("cmd=finalize_ack rc=0")
	case "abort": // it may say more: MPICH leaves it to others to end the rank
		s.abort(c, r)
		return nil
	case "spawn":
		return s.refuseSpawn(c)
	case "publish_name", "unpublish_name", "lookup_name":
		return c.say("cmd=%s_result rc=-1 msg=names_are_not_offered", r.cmd[:len(r.cmd)-len("_name")])
	}
	return fmt.Errorf("%w: cmd=%q", errLine, r.cmd)
}

func (s *Server) put(c *client, r request) error {
	s.mu.Lock()
	err := s.space.put(c.rank, r.fields["key"], r.fields["value"])
	s.mu.Unlock()
	if err != nil {
		return c.say("cmd=put_result rc=-1 msg=%s", fold(err.Error()))
	}
	return c.say("cmd=put_result rc=0 msg=success")
}

func (s *Server) get(c *client, r request) error {
	s.mu.Lock()
	value, ok := s.space.get(r.fields["key"])
	s.mu.Unlock()
	if !ok {
		return c.say("cmd=get_result rc=-1 msg=key_not_found value=unknown")
	}
	return c.say("cmd=get_result rc=0 msg=success value=%s", value)
}

// enter is a rank in the barrier. The last one of the pod carries what the pod
// has put to the others.
func (s *Server) enter(c *client) error {
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

// pass is the barrier once the whole pod is in it.
func (s *Server) pass(own []byte) {
	all, err := s.together(s.ctx, pieceKeys, own)
	waiting, err := s.admit(all, err)
	for _, c := range waiting {
		if err != nil {
			_ = c.conn.Close() // its library says so
			continue
		}
		s.wg.Go(func() { // each by itself: one of them may not read
			if c.say("cmd=barrier_out rc=0") != nil { // a rank that has died is the launcher's matter
				_ = c.conn.Close()
			}
		})
	}
}

// endsOfOthers are the errors of a connection that has ended.
var endsOfOthers = []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, unix.ECONNRESET, unix.EPIPE, errChildGone}

// severity is the level at which the failure of a round is logged. A connection that ends follows
// from the end of a pod or of the job, whose cause is told elsewhere.
func (s *Server) severity(err error) slog.Level {
	ended := slices.ContainsFunc(endsOfOthers, func(end error) bool { return errors.Is(err, end) })
	if ended || s.cfg.JobFailed != nil && s.cfg.JobFailed() {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// admit takes what all pods have put, and returns who waits for it.
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
