package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// inbox holds closures that other goroutines post to the turn goroutine. It is for rare events:
// attaching, connecting, reading counters.
type inbox struct {
	mu       sync.Mutex
	calls    []func(*Engine)
	waiting  atomic.Bool // calls is not empty
	closed   bool
	doorbell int
}

// errStopped is returned to callers that post to an engine that has stopped.
var errStopped = errors.New("engine: stopped")

// post adds a call and wakes the engine.
func (m *inbox) post(f func(*Engine)) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errStopped
	}
	m.calls = append(m.calls, f)
	m.waiting.Store(true)
	m.mu.Unlock()
	return wake.Ring(m.doorbell)
}

// postLater adds a call from the turn goroutine itself, for the next turn.
func (m *inbox) postLater(f func(*Engine)) {
	m.mu.Lock()
	m.calls = append(m.calls, f)
	m.waiting.Store(true)
	m.mu.Unlock()
}

func (m *inbox) removeCalls() []func(*Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.calls
	m.calls = nil
	m.waiting.Store(false)
	return l
}

// close makes post fail from now on, and returns the calls that were not run.
func (m *inbox) close() []func(*Engine) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return m.removeCalls()
}

func (m *inbox) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func (e *Engine) runCalls() int {
	if !e.inbox.waiting.Load() {
		return 0
	}
	calls := e.inbox.removeCalls()
	for _, f := range calls {
		f(e)
	}
	return len(calls)
}

// AttachSession attaches s (session.Host). If the rank has left before, it waits until the
// next generation begins.
func (e *Engine) AttachSession(s *session.Session) error {
	answer := make(chan error, 1)
	if err := e.AttachLater(s, func(err error) { answer <- err }); err != nil {
		return err
	}
	return <-answer
}

// SessionGone reports that an application's socket has closed (session.Host).
func (e *Engine) SessionGone(s *session.Session) {
	if e.cfg.Heard != nil && e.vanishes(s) {
		e.cfg.Heard(s.Rank)
	}
	// A stopped engine needs no report.
	_ = e.inbox.post(func(e *Engine) {
		if a := e.byRank[s.Rank]; a != nil && a.Session == s {
			if s.Unopened() && !a.closing && !a.Ready() && e.core.Unattach(e.now, a.id) {
				s.Forget()
				e.close(a)
				return
			}
			// The descriptors that it published before are processed first: a detach may be
			// among them. Another process that has its memory mapped may go on publishing,
			// so that no more descriptors are taken than fit the ring.
			a.Deafen()
			a.ended, a.remaining = true, a.Pending()
			e.gone = append(e.gone, a)
			e.judgeTurns = judgeTurnsMax
			for _, b := range e.active {
				b.toTake = b.Pending()
				e.visit(b)
			}
		}
	})
}

// vanishes reports whether a session whose socket has closed has not detached yet.
func (e *Engine) vanishes(s *session.Session) bool {
	is := make(chan bool, 1)
	err := e.inbox.post(func(e *Engine) {
		a := e.byRank[s.Rank]
		is <- a != nil && a.Session == s && !a.closing
	})
	return err == nil && <-is
}

// Expel ends the session of an application that broke the contract outside of its rings
// (session.Host).
func (e *Engine) Expel(s *session.Session, cause error) {
	err := e.inbox.post(func(e *Engine) {
		if a := e.byRank[s.Rank]; a != nil && a.Session == s {
			e.expel(a, cause)
		}
	})
	if err != nil {
		s.HangUp() // a stopped engine does not end it
	}
}

var errVanished = errors.New(podlife.TextVanished)

// Drain records that the ranks are told to end, and why: from now on, that is the reason of
// a session that ends without a detach. Messages go on. Drain must be called on the turn
// goroutine (InTurn).
func (e *Engine) Drain(why string) { e.drained = errors.New(why) }

// vanished returns the reason of a session that ends without a detach.
func (e *Engine) vanished(a *attached) error {
	if e.drained != nil {
		return e.drained
	}
	// MPICH goes on after it has requested an abort, and may crash before the request is
	// read.
	if _, text := a.LastError(); text == "" && e.cfg.MPI {
		if absent := e.core.Deserted(e.now, a.id); absent != nil {
			return absent
		}
	}
	return a.vanished()
}

// vanished returns the reason of a session whose process has ended: with its last error, if
// its client has stored one. If a collective of it had failed because a rank had left, the
// reason blames that rank.
func (a *attached) vanished() error {
	absent, text := a.LastError()
	switch {
	case text == "":
		return errVanished
	case absent > 0:
		return &core.AbsentError{Rank: absent - 1, Text: fmt.Sprintf("%s%d%s%s", podlife.TextAbsent, a.Rank, podlife.TextAbsentFrom, text)}
	}
	return fmt.Errorf("%w%s%s", errVanished, podlife.TextLastError, text)
}

// Connected passes the descriptor of a connected socket to the remote link (peers).
func (e *Engine) Connected(peer link.Peer, fd int) {
	drop := func() { _ = unix.Close(fd) } // no link uses the socket
	attach := e.can[linkRemote].Attach
	if attach == nil {
		drop() // this link makes its own connections
		return
	}
	e.Joined(peer, func() error { return attach(peer, fd) }, drop)
}

// joining is a connection that the remote link has not accepted yet.
type joining struct {
	join func() error
	drop func()
}

// Joined passes a connection to a link in the link's own way: join passes it to the link,
// on the turn goroutine; drop releases it if the engine has stopped, or if a newer
// connection arrived before the link accepted it (link.ErrLater).
func (e *Engine) Joined(peer link.Peer, join func() error, drop func()) {
	err := e.inbox.post(func(e *Engine) {
		if old := e.joining[peer]; old != nil {
			delete(e.joining, peer)
			old.drop()
		}
		e.join(peer, &joining{join, drop})
	})
	if err != nil {
		drop()
	}
}

// join passes a connection to the link, in this turn or, if the link is not ready, in a
// later one.
func (e *Engine) join(peer link.Peer, j *joining) {
	switch err := j.join(); {
	case errors.Is(err, link.ErrLater):
		e.joining[peer] = j
		return
	case err != nil:
		delete(e.joining, peer)
		e.core.LinkDown(e.now, peer, err)
		return
	}
	delete(e.joining, peer)
	caps := e.cfg.Remote.Caps()
	if peerCaps := e.can[linkRemote].PeerCaps; peerCaps != nil {
		caps = peerCaps(peer)
	}
	e.core.LinkUp(e.now, peer, caps)
}

// joinLater offers the connections that the link could not accept in the last turn again.
// The link may need several turns: the engine does not sleep meanwhile.
func (e *Engine) joinLater() int {
	if len(e.joining) == 0 { // the usual case
		return 0
	}
	for peer, j := range e.joining {
		e.join(peer, j)
	}
	return len(e.joining)
}

// ConnectFailed reports that no connection to a peer could be made.
func (e *Engine) ConnectFailed(peer link.Peer, cause error) {
	_ = e.inbox.post(func(e *Engine) { e.core.LinkFailed(e.now, peer, cause) }) // a stopped engine needs no report
}

// PeerLost reports that the process of a peer was started again, although the peer may be
// connected.
func (e *Engine) PeerLost(peer link.Peer, cause error) {
	_ = e.inbox.post(func(e *Engine) { e.core.PeerLost(e.now, peer, cause) }) // a stopped engine needs no report
}

// Fail ends the job for a cause outside of the engine.
func (e *Engine) Fail(f *core.Failure) {
	_ = e.inbox.post(func(e *Engine) { e.core.Fail(e.now, f) }) // a stopped engine has ended the job
}

// Aborted ends the job for a rank whose MPI requests an abort.
func (e *Engine) Aborted(rank, code uint32) {
	_ = e.inbox.post(func(e *Engine) { e.core.Aborted(e.now, rank, code) }) // as above
}

// Leave announces that no application will attach any more: the peers are notified as soon
// as no session is left.
func (e *Engine) Leave() {
	_ = e.inbox.post(func(e *Engine) { e.core.Leave(e.now) }) // a stopped engine has left
}

// Absent reports that the process of a rank has ended and that the rank attaches no more.
func (e *Engine) Absent(rank uint32) {
	_ = e.inbox.post(func(e *Engine) { e.core.Absent(e.now, rank) }) // a stopped engine has left
}

// InTurn calls do between two turns and waits until it returns. It must not be called from
// the turn goroutine. It returns an error, without calling do, if the engine has stopped.
func (e *Engine) InTurn(do func()) error {
	done := make(chan struct{})
	if err := e.inbox.post(func(*Engine) { do(); close(done) }); err != nil {
		return err
	}
	<-done
	return nil
}

// Leftover returns what would be lost if the sidecar ended now.
func (e *Engine) Leftover() (core.Leftover, error) {
	answer := make(chan core.Leftover, 1)
	if err := e.inbox.post(func(e *Engine) { answer <- e.core.Leftover() }); err != nil {
		return core.Leftover{}, err
	}
	return <-answer, nil
}

// View is a consistent snapshot of the counters.
type View struct {
	Core                      core.Stats
	Turns                     Turns
	LinkBytesIn, LinkBytesOut uint64
	Direct                    int         // peers reached without sockets
	Paths                     []link.Path // nil: the link between pods has one
	Lent                      link.LentCounts
	Buffers                   []RankBuffers // nil: the link does not choose between copying and gathering
	Copies                    copyeng.Stats
	Times                     []trace.Summary
}

// View returns a snapshot of the counters, taken between two turns.
func (e *Engine) View() (View, error) {
	answer := make(chan View, 1)
	err := e.inbox.post(func(e *Engine) {
		v := View{Core: e.core.Stats(), Turns: e.turns, Buffers: e.buffers(), Copies: e.cfg.Copies.Stats()}
		if l := &e.can[linkRemote]; l.Bytes != nil {
			v.LinkBytesIn, v.LinkBytesOut = l.Bytes()
		}
		if direct := e.can[linkRemote].Direct; direct != nil {
			v.Direct = direct()
		}
		if paths := e.can[linkRemote].Paths; paths != nil {
			v.Paths = paths()
		}
		if lent := e.can[linkRemote].Lent; lent != nil {
			v.Lent = lent()
		}
		for _, t := range e.times {
			v.Times = append(v.Times, t.Summary(e.now))
		}
		answer <- v
	})
	if err != nil {
		return View{}, err
	}
	return <-answer, nil
}

// tracePiece is how many events of each kind one turn copies, about 100 KiB, so that a copy
// delays no turn for long.
const tracePiece = 1024

// Traced returns a copy of the recorded trace, made one piece a turn, or nil if no trace is
// recorded.
func (e *Engine) Traced() (*trace.Part, error) {
	if e.cfg.Trace == nil {
		return nil, nil
	}
	var c *trace.Copying
	answer := make(chan int, 1)
	if err := e.inbox.post(func(e *Engine) {
		var events int
		c, events = e.cfg.Trace.Copy()
		answer <- events
	}); err != nil {
		return nil, err
	}
	events := <-answer
	c.Reserve(events)
	for more := true; more; {
		done := make(chan bool, 1)
		if err := e.inbox.post(func(*Engine) { done <- c.Some(tracePiece) }); err != nil {
			return nil, err
		}
		more = <-done
	}
	return c.Part(), nil
}

// Traffic calls row with the traffic of each hosted rank, one rank a turn.
func (e *Engine) Traffic(row func(src uint32, to []core.Talk, rest core.Traffic)) error {
	type answer struct {
		src  uint32
		to   []core.Talk
		rest core.Traffic
	}
	got := make(chan answer, 1)
	for i := range e.core.Hosted() {
		err := e.inbox.post(func(e *Engine) {
			var a answer
			a.src, a.to, a.rest = e.core.Talks(i, nil)
			got <- a
		})
		if err != nil {
			return err
		}
		a := <-got
		row(a.src, a.to, a.rest)
	}
	return nil
}

// Waits is what a rank waits for, and what the engine knows about its process.
type Waits struct {
	core.Waits
	Now   int64 // time of the engine's clock
	Quiet int64 // how long no call of the rank has begun or ended
	PID   int   // 0: unknown
	Free  bool  // by its client's report, none of its threads is in a call that waits

	Unread bool   // its ring holds completions that it has not taken
	Tags   uint32 // how its MPI encodes tags (LAYOUT §8.2)

	Vain     []trace.Probe // probes that it repeats, although they find nothing
	MoreVain bool          // there are further ones
	Repeats  *Repeats      // accesses that it repeats, although they change nothing; nil: it does not
}

// Waits calls row with what each hosted rank waits for, one rank a turn.
func (e *Engine) Waits(row func(*Waits)) error {
	got := make(chan *Waits, 1)
	for i := range e.core.Hosted() {
		if err := e.inbox.post(func(e *Engine) {
			w := &Waits{Waits: e.core.WaitsOf(i), Now: e.now}
			if at := e.byRank[w.Rank]; at != nil {
				now := shm.MomentOf(wake.Monotonic())
				e.addRepeats(w, at, now)
				w.PID, w.Free = at.PID, at.Unblocked(now)
				w.Unread, w.Tags = at.Unread(at.times.Vain()), at.Tags()
			}
			got <- w
		}); err != nil {
			return err
		}
		row(<-got)
	}
	return nil
}

// stuckAfter is how long a turn may last before Alive reports a failure. No turn takes a
// thousandth of it.
const stuckAfter = 5 * time.Second

// Alive reports whether the turns go on, without waiting for one.
func (e *Engine) Alive() error {
	if e.inbox.stopped() {
		return errStopped
	}
	if e.asleep.Load() {
		return nil
	}
	if d := time.Duration(e.clock() - e.lastTurn.Load()); d > stuckAfter {
		return fmt.Errorf("engine: a turn has taken %v", d)
	}
	return nil
}

// Break breaks the connection to a peer, as a drill: the job goes on over the next
// connection. A link that cannot break its connections keeps this one.
func (e *Engine) Break(peer link.Peer) error {
	return e.inbox.post(func(e *Engine) {
		if br := e.can[linkRemote].Break; br != nil {
			br(peer)
		}
	})
}

// Counters returns the core's counters, for callers that run the turns themselves; other
// callers use View.
func (e *Engine) Counters() core.Stats { return e.core.Stats() }

// Remains returns the same as Leftover, for callers that run the turns themselves.
func (e *Engine) Remains() core.Leftover { return e.core.Leftover() }

// Attached reports whether a rank has a session that has not ended, and whether it has
// published a descriptor that was not taken, for callers that run the turns themselves.
func (e *Engine) Attached(rank uint32) (attached, speaks bool) {
	a := e.byRank[rank]
	if a == nil || e.isGone(a) {
		return false, false
	}
	return true, a.Ready()
}

// PID returns the process that has attached for a rank, for callers that run the turns
// themselves, or 0 if no process has attached or it is in another PID namespace.
func (e *Engine) PID(rank uint32) int {
	if a := e.byRank[rank]; a != nil {
		return a.PID
	}
	return 0
}

// Failure returns why the job failed, or nil, for callers that run the turns themselves.
func (e *Engine) Failure() *core.Failure { return e.core.Failed() }
