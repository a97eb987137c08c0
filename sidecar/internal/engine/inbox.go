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
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// mailbox brings work of other goroutines to the turn. It is for rare things:
// attaching, connecting, asking for counters.
type mailbox struct {
	mu       sync.Mutex
	letters  []func(*Engine)
	waiting  atomic.Bool // letters is not empty
	closed   bool
	doorbell int
}

// errStopped answers those who write to an engine that has stopped.
var errStopped = errors.New("engine: stopped")

// send leaves a letter and wakes the engine.
func (m *mailbox) send(f func(*Engine)) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errStopped
	}
	m.letters = append(m.letters, f)
	m.waiting.Store(true)
	m.mu.Unlock()
	return wake.Ring(m.doorbell)
}

// later leaves a letter from the turn itself, for the next turn.
func (m *mailbox) later(f func(*Engine)) {
	m.mu.Lock()
	m.letters = append(m.letters, f)
	m.waiting.Store(true)
	m.mu.Unlock()
}

func (m *mailbox) take() []func(*Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.letters
	m.letters = nil
	m.waiting.Store(false)
	return l
}

// close makes send fail from now on, and returns what was never read.
func (m *mailbox) close() []func(*Engine) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return m.take()
}

func (m *mailbox) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func (e *Engine) readMail() int {
	if !e.mail.waiting.Load() {
		return 0
	}
	letters := e.mail.take()
	for _, f := range letters {
		f(e)
	}
	return len(letters)
}

// AttachSession makes s known (session.Host). For a rank that has left it waits until the
// next generation begins.
func (e *Engine) AttachSession(s *session.Session) error {
	answer := make(chan error, 1)
	if err := e.AttachLater(s, func(err error) { answer <- err }); err != nil {
		return err
	}
	return <-answer
}

// SessionGone reports that an application's socket ended (session.Host).
func (e *Engine) SessionGone(s *session.Session) {
	if e.cfg.Heard != nil && e.vanishes(s) {
		e.cfg.Heard(s.Rank)
	}
	// A stopped engine has no use for the news.
	_ = e.mail.send(func(e *Engine) {
		if a := e.byRank[s.Rank]; a != nil && a.Session == s {
			if s.Unopened() && !a.closing && !a.Ready() && e.core.Unattach(e.now, a.id) {
				s.Forget()
				e.close(a)
				return
			}
			// What it said before it ended comes first: a goodbye may be
			// among it. Another process that has its memory may go on, so
			// that it is no more than fits the ring.
			a.Deafen()
			a.ended, a.last = true, a.Pending()
			e.gone = append(e.gone, a)
			e.ends = endsMax
			for _, b := range e.active {
				b.earlier = b.Pending()
			}
		}
	})
}

// vanishes reports whether a session whose socket has ended has said no goodbye yet.
func (e *Engine) vanishes(s *session.Session) bool {
	is := make(chan bool, 1)
	err := e.mail.send(func(e *Engine) {
		a := e.byRank[s.Rank]
		is <- a != nil && a.Session == s && !a.closing
	})
	return err == nil && <-is
}

// Expel ends the session of an application that broke the contract beside its rings
// (session.Host).
func (e *Engine) Expel(s *session.Session, cause error) {
	err := e.mail.send(func(e *Engine) {
		if a := e.byRank[s.Rank]; a != nil && a.Session == s {
			e.expel(a, cause)
		}
	})
	if err != nil {
		s.HangUp() // a stopped engine does not
	}
}

var errVanished = errors.New(podlife.TextVanished)

// Drain notes that the ranks are told to end, and why: from now on that is the reason of a
// session that ends without a goodbye, and messages go on. On the turn goroutine (InTurn).
func (e *Engine) Drain(why string) { e.drained = errors.New(why) }

// vanished is the reason of a session that ends without a goodbye.
func (e *Engine) vanished(a *attached) error {
	if e.drained != nil {
		return e.drained
	}
	// MPICH goes on when it has asked for an abort, and may crash before that is heard.
	if _, text := a.LastError(); text == "" && e.cfg.MPI {
		if absent := e.core.Deserted(e.now, a.id); absent != nil {
			return absent
		}
	}
	return a.vanished()
}

// vanished is why the session of an application ends whose process has: with its last error,
// if its client has told one. If a collective of it had failed because a rank had left, that
// one is to blame.
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

// Connected hands over a connected socket (peers).
func (e *Engine) Connected(peer link.Peer, fd int) {
	drop := func() { _ = unix.Close(fd) } // nobody will use it
	attach := e.can[linkRemote].Attach
	if attach == nil {
		drop() // this link makes its own connections
		return
	}
	e.Joined(peer, func() error { return attach(peer, fd) }, drop)
}

// joining is a connection that is handed over.
type joining struct {
	join func() error
	drop func()
}

// Joined hands over a connection in the link's own way: join gives it to the link,
// on the turn goroutine; drop gives it up when the engine has stopped, or when another
// one has come before the link could take it (link.ErrLater).
func (e *Engine) Joined(peer link.Peer, join func() error, drop func()) {
	err := e.mail.send(func(e *Engine) {
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

// join gives a connection to the link, now or in a later turn.
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

// joinLater asks again for what the link could not take in the last turn. What it waits
// for may need the next one, too: the engine does not sleep meanwhile.
func (e *Engine) joinLater() int {
	if len(e.joining) == 0 { // almost always
		return 0
	}
	for peer, j := range e.joining {
		e.join(peer, j)
	}
	return len(e.joining)
}

// ConnectFailed reports that no connection could be made.
func (e *Engine) ConnectFailed(peer link.Peer, cause error) {
	_ = e.mail.send(func(e *Engine) { e.core.LinkFailed(e.now, peer, cause) }) // a stopped engine does not care
}

// PeerLost reports that a peer is not what it was, though it may be connected:
// its process was started again.
func (e *Engine) PeerLost(peer link.Peer, cause error) {
	_ = e.mail.send(func(e *Engine) { e.core.PeerLost(e.now, peer, cause) }) // a stopped engine does not care
}

// Fail ends the job for a reason from outside.
func (e *Engine) Fail(f *core.Failure) {
	_ = e.mail.send(func(e *Engine) { e.core.Fail(e.now, f) }) // a stopped engine has ended already
}

// Aborted ends the job for a rank whose MPI asks for that.
func (e *Engine) Aborted(rank, code uint32) {
	_ = e.mail.send(func(e *Engine) { e.core.Aborted(e.now, rank, code) }) // as above
}

// Leave says that no application will attach any more: the peers are told as
// soon as none is left.
func (e *Engine) Leave() {
	_ = e.mail.send(func(e *Engine) { e.core.Leave(e.now) }) // a stopped engine has left
}

// Absent says that the process of a rank has ended, and attaches no more.
func (e *Engine) Absent(rank uint32) {
	_ = e.mail.send(func(e *Engine) { e.core.Absent(e.now, rank) }) // a stopped engine has left
}

// InTurn does something between two turns, and waits until it is done. It is not for
// callers in the turn. An error: the engine has stopped, and it is not done.
func (e *Engine) InTurn(do func()) error {
	done := make(chan struct{})
	if err := e.mail.send(func(*Engine) { do(); close(done) }); err != nil {
		return err
	}
	<-done
	return nil
}

// Leftover tells what keeps the sidecar from ending without taking something
// with it.
func (e *Engine) Leftover() (core.Leftover, error) {
	answer := make(chan core.Leftover, 1)
	if err := e.mail.send(func(e *Engine) { answer <- e.core.Leftover() }); err != nil {
		return core.Leftover{}, err
	}
	return <-answer, nil
}

// View is a consistent picture of the counters.
type View struct {
	Core                      core.Stats
	Turns                     Turns
	LinkBytesIn, LinkBytesOut uint64
	Direct                    int // peers that were reached beside their sockets
	Lent                      link.LentCounts
	Buffers                   []RankBuffers // where the link chooses between copying and gathering
	Times                     []trace.Summary
}

// View asks the turn for its counters.
func (e *Engine) View() (View, error) {
	answer := make(chan View, 1)
	err := e.mail.send(func(e *Engine) {
		v := View{Core: e.core.Stats(), Turns: e.turns, Buffers: e.buffers()}
		if l := &e.can[linkRemote]; l.Bytes != nil {
			v.LinkBytesIn, v.LinkBytesOut = l.Bytes()
		}
		if direct := e.can[linkRemote].Direct; direct != nil {
			v.Direct = direct()
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

// tracePiece is how many events of each kind one turn copies: some 100 KiB.
const tracePiece = 1024

// Traced is a copy of what has been recorded, made a piece a turn; nil: nothing is.
func (e *Engine) Traced() (*trace.Part, error) {
	if e.cfg.Trace == nil {
		return nil, nil
	}
	var c *trace.Copying
	answer := make(chan int, 1)
	if err := e.mail.send(func(e *Engine) {
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
		if err := e.mail.send(func(*Engine) { done <- c.Some(tracePiece) }); err != nil {
			return nil, err
		}
		more = <-done
	}
	return c.Part(), nil
}

// Talked asks for the traffic of the hosted ranks, one row a turn.
func (e *Engine) Talked(row func(src uint32, to []core.Talk, rest core.Traffic)) error {
	type answer struct {
		src  uint32
		to   []core.Talk
		rest core.Traffic
	}
	got := make(chan answer, 1)
	for i := range e.core.Hosted() {
		err := e.mail.send(func(e *Engine) {
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

// Waits is what a rank waits for, with what the engine knows of its process.
type Waits struct {
	core.Waits
	Now   int64 // the engine's time
	Quiet int64 // for how long no call of the rank has begun or ended
	PID   int   // 0: not known
	Free  bool  // none of its threads is in a call that waits, by its own word

	Unread bool   // completions lie in its ring which it has not taken
	Tags   uint32 // how its MPI makes tags (LAYOUT §8.2)
}

// Waits asks what the hosted ranks wait for, one a turn.
func (e *Engine) Waits(row func(*Waits)) error {
	got := make(chan *Waits, 1)
	for i := range e.core.Hosted() {
		if err := e.mail.send(func(e *Engine) {
			w := &Waits{Waits: e.core.WaitsOf(i), Now: e.now}
			if at := e.byRank[w.Rank]; at != nil {
				w.Quiet, w.PID, w.Free = at.times.Quiet(e.now), at.PID, at.Unblocked(shm.MomentOf(wake.Monotonic()))
				w.Unread, w.Tags = at.Unread(), at.Tags()
			}
			got <- w
		}); err != nil {
			return err
		}
		row(<-got)
	}
	return nil
}

// stuckAfter is how long a turn may take before the engine is not alive. No turn
// takes a thousandth of it.
const stuckAfter = 5 * time.Second

// Alive reports whether turns go on, without asking for one.
func (e *Engine) Alive() error {
	if e.mail.stopped() {
		return errStopped
	}
	if e.asleep.Load() {
		return nil
	}
	if d := time.Duration(e.clock() - e.pulse.Load()); d > stuckAfter {
		return fmt.Errorf("engine: a turn has taken %v", d)
	}
	return nil
}

// Break breaks the connection to a peer, as a drill: the job goes on over the
// next one. A link that does not break connections on purpose goes on with this one.
func (e *Engine) Break(peer link.Peer) error {
	return e.mail.send(func(e *Engine) {
		if br := e.can[linkRemote].Break; br != nil {
			br(peer)
		}
	})
}

// Counters are the core's counters, for callers that do the turns themselves;
// others use View.
func (e *Engine) Counters() core.Stats { return e.core.Stats() }

// Remains is Leftover for the same callers.
func (e *Engine) Remains() core.Leftover { return e.core.Leftover() }

// Attached reports whether a rank has a session that has not ended, and whether something
// that it said is still to be taken, for the same callers.
func (e *Engine) Attached(rank uint32) (attached, speaks bool) {
	a := e.byRank[rank]
	if a == nil || e.isGone(a) {
		return false, false
	}
	return true, a.Ready()
}

// PID is the process that has attached for a rank, for the same callers; 0: none has, or it
// is in another PID namespace.
func (e *Engine) PID(rank uint32) int {
	if a := e.byRank[rank]; a != nil {
		return a.PID
	}
	return 0
}

// Failure is why the job failed, or nil, for the same callers.
func (e *Engine) Failure() *core.Failure { return e.core.Failed() }
