// Package engine is the turn: it takes what applications and links have, lets
// the core decide, and carries out what the core wants. One goroutine, locked
// to its thread, owns everything here; other goroutines reach it by mail. What a link can
// do beyond carrying frames the engine reads once, when it is made, from link.Abilities.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// Dialer makes connections to peers. The answer comes by Engine.Connected or
// Engine.ConnectFailed.
type Dialer interface {
	Connect(peer link.Peer)
	Cancel(peer link.Peer)
}

// Recorder keeps protocol events for the post-mortem.
type Recorder interface {
	Record(now int64, kind uint8, peer int32, rank uint32, tag, size, seq uint64)
}

// Config of an Engine.
type Config struct {
	Core   core.Config
	Local  link.Link // frames to this sidecar itself
	Remote link.Link // frames to the others
	Dialer Dialer
	Log    *slog.Logger
	Record Recorder        // nil: nothing is recorded
	Trace  *trace.Recorder // of calls, messages and turns; nil: nothing is recorded
	Wait   Wait
	MPI    bool // the ranks may be an MPI's, which has no errors of its own in the segment
	// Heard waits, for a bounded time, until all is known that a rank has said outside of its
	// session, such as an abort of its MPI. It is called before the end of a session without a
	// goodbye counts, and not on the turn goroutine. nil: there is nothing to wait for.
	Heard func(rank uint32)
	// Failed is told once when the job has failed, on the turn goroutine.
	Failed func(*core.Failure)
}

// Places of the links in an Engine.
const (
	linkLocal = iota
	linkRemote
)

// Engine runs the turns of one sidecar.
type Engine struct {
	cfg      Config
	core     *mind
	links    [2]link.Link                 // local, remote
	can      [2]link.Abilities            // theirs
	regions  [][]byte                     // by link.Region
	sessions []*attached                  // by core.SessionID; nil: free
	departed map[uint32]link.BufferCounts // of sessions that have ended, by rank
	times    []*trace.Times               // of the ranks that have attached
	active   []*attached
	first    int         // of active, who is taken from first
	ends     int         // turns that the ends of sockets may still wait for what links have; 0: none has ended
	gone     []*attached // whose sockets have ended, in the order of that
	byRank   map[uint32]*attached
	again    []returning // ranks that attach again, and wait for the next generation
	joining  map[link.Peer]*joining
	now      int64
	breath   int64        // when the turn's goroutine last went through Go's scheduler
	pulse    atomic.Int64 // when a turn last began, about; for Alive
	asleep   atomic.Bool
	nextTick int64
	failed   bool
	drained  error // why the ranks are told to end; nil: they are not
	clock    func() int64
	mail     mailbox
	sleeper  *sleeper
	turns    Turns
	slice    slice
	d        shm.Descriptor // scratch of intake; a local would escape
}

// Turns counts what the engine's thread did.
type Turns struct{ Busy, Idle, Yields, Sleeps uint64 }

// attached is a session with its place in the core.
type attached struct {
	*session.Session
	id      core.SessionID
	regions [2]link.Region
	lends   link.Region // of memory that it registers itself; core.RegionNone: it may not
	closing bool        // the core has been told that it is gone
	ended   bool        // its socket has ended: only last descriptors are still taken
	spent   bool        // they have been
	sealed  bool        // the memory is, since it has submitted a descriptor
	last    int         // how many there may be
	earlier int         // that it may have published before the end of a neighbour's socket was known
	times   *trace.Times
}

// intakeBatch bounds the descriptors taken from one application in a turn, so
// that none starves the others.
const intakeBatch = 64

// New makes an engine. clock gives nanoseconds of any epoch.
func New(cfg Config, clock func() int64) (*Engine, error) {
	e := &Engine{cfg: cfg, clock: clock, links: [2]link.Link{cfg.Local, cfg.Remote}, byRank: map[uint32]*attached{}, joining: map[link.Peer]*joining{}}
	e.can = [2]link.Abilities{cfg.Local.Abilities(), cfg.Remote.Abilities()}
	cfg.Core.Gatherer, cfg.Core.Caster = e.can[linkRemote].Gatherer, e.can[linkRemote].Caster
	pool, err := reserveMemory(cfg.Core.PoolBytes())
	if err != nil {
		return nil, err
	}
	rings, err := reserveMemory(cfg.Core.RingBytes())
	if err != nil {
		return nil, errors.Join(err, releaseMemory(pool))
	}
	e.regions = [][]byte{core.RegionNone: nil, core.RegionPool: pool, core.RegionDiscard: make([]byte, wire.FrameMax), core.RegionRings: rings}
	if e.core, err = newMind(cfg.Core, e); err != nil {
		return nil, errors.Join(err, releaseMemory(pool), releaseMemory(rings))
	}
	if e.sleeper, err = newSleeper(e.can); err != nil {
		return nil, errors.Join(err, releaseMemory(pool), releaseMemory(rings))
	}
	e.mail.doorbell = e.sleeper.doorbell
	e.now = clock()
	e.pulse.Store(e.now)
	return e, nil
}

// Close gives back what New took. The turn must have stopped.
func (e *Engine) Close() error {
	var err error
	for _, j := range e.joining {
		j.drop()
	}
	for _, a := range e.sessions {
		if a != nil {
			err = errors.Join(err, a.Free())
		}
	}
	return errors.Join(err, e.cfg.Local.Close(), e.cfg.Remote.Close(), e.sleeper.close(), releaseMemory(e.regions[core.RegionPool]), releaseMemory(e.regions[core.RegionRings]))
}

// Turn does one round of everything, and returns how much there was to do.
func (e *Engine) Turn() int {
	e.now = e.clock()
	work := e.joinLater() + e.readMail()
	work += e.intakeAll()
	// What applications want goes out before the links are asked for news,
	// which costs a system call; what the news brings about goes out after.
	e.flush()
	news := 0
	for _, l := range e.links {
		news += l.Poll(e)
	}
	if e.ends > 0 {
		e.judge(news > 0)
	}
	work += news + e.core.PollMemory(e.now)
	if e.now >= e.nextTick {
		e.tick()
	}
	work += e.core.Advance(e.now) // of what time has brought about, too
	work += e.readmit()
	if e.flush() {
		work++
	}
	for i := 0; i < len(e.active); i++ {
		a := e.active[i]
		// Completions that are left wait for the application to read.
		if _, err := a.Publish(); err != nil {
			e.expel(a, err)
		}
	}
	if f := e.core.Failed(); f != nil && !e.failed {
		e.failed = true
		if e.cfg.Failed != nil {
			e.cfg.Failed(f)
		}
	}
	if work > 0 && e.cfg.Trace != nil {
		e.cfg.Trace.Turn(e.now, e.clock(), work)
	}
	return work
}

// flush posts what the core has for the links.
func (e *Engine) flush() bool {
	some := e.core.Flush(e.now, e)
	if commit := e.can[linkRemote].Commit; commit != nil {
		commit()
	}
	return some
}

func (e *Engine) tick() {
	e.pulse.Store(e.now)
	e.nextTick = e.core.Tick(e.now)
	if e.nextTick == 0 || e.nextTick > e.now+tickMax {
		e.nextTick = e.now + tickMax
	}
	// Timers set between ticks are at most this late.
	e.nextTick = min(e.nextTick, e.now+tickMax)
}

// intakeMax bounds the descriptors taken in a turn from all applications.
const intakeMax = 256

// intakeEffort bounds the bytes of lists that descriptors make the core read in
// a turn: communicators and collectives of large jobs.
const intakeEffort = 64 << 10

// intakeAll takes descriptors from the applications, beginning with the one after
// the last that had its turn.
func (e *Engine) intakeAll() int {
	work, limit := 0, e.core.Effort()+intakeEffort
	for i := range len(e.active) {
		if work >= intakeMax || e.core.Effort() >= limit {
			e.first += i
			return work + 1
		}
		if n := len(e.active); n > 0 { // intake may end sessions
			work += e.intake(e.active[(e.first+i)%n])
		}
	}
	return work
}

// intake takes descriptors from one application.
func (e *Engine) intake(a *attached) int {
	n, most, held := 0, intakeBatch, e.core.Held(a.id)
	switch {
	case held: // asked once a batch, which is the most that comes beyond the bound
		most = 0
	case a.ended:
		most = min(most, a.last)
	}
	for limit := e.core.Effort() + intakeEffort; n < most && !a.closing && e.core.Effort() < limit && a.Next(&e.d); {
		if n++; !a.sealed {
			a.sealed = true
			if err := a.Seal(); err != nil {
				e.expel(a, err)
				break
			}
		}
		a.times.Submit(e.now, &e.d)
		if err := e.core.Submit(e.now, a.id, &e.d); err != nil {
			e.expel(a, err)
		}
		if e.d.Op == shm.OpColl && e.core.Held(a.id) {
			break // it takes its vectors first
		}
	}
	if a.earlier -= n; n == 0 || a.earlier < 0 { // one that is held could be so for long
		a.earlier = 0
	}
	if a.ended {
		a.last -= n
		a.spent = a.last == 0 || n == 0 && !held
	}
	return n
}

// endsMax bounds the turns in which links bring something before the end of a socket is
// judged: more than a socket's buffers hold, and a link that always has something does
// not keep a rank that has vanished.
const endsMax = 64

// judge ends the sessions of applications whose sockets have ended. Their neighbours have
// been heard first, and so have the peers: who is ended because another has failed is not
// the cause, and what that one has said of it, or its sidecar, was in its ring, or in the
// link, before. Of those that are judged at once the first to end is the cause of the rest,
// unless it is held, which another's end may be what it waits for.
func (e *Engine) judge(news bool) {
	for _, a := range e.active {
		if a.earlier > 0 {
			return
		}
	}
	if news && e.ends > 1 {
		e.ends--
		return
	}
	e.ends = 0
	later, first := e.gone[:0], true
	for _, a := range e.gone {
		switch {
		case a.closing: // it had said goodbye
		case a.spent && first:
			e.detach(a, e.vanished(a))
		default:
			e.ends = 1 // its last descriptors are still to be taken, or those of one before it
			first = first && e.core.Held(a.id)
			later = append(later, a)
		}
	}
	clear(e.gone[len(later):])
	e.gone = later
}

// expel ends the session of an application that lied (LAYOUT §6).
func (e *Engine) expel(a *attached, cause error) {
	if a.closing {
		return
	}
	e.cfg.Log.Warn("application expelled: it broke the shared-memory contract", "rank", a.Rank, "cause", cause)
	a.SetFailure(cause.Error())
	e.detach(a, fmt.Errorf(podlife.TextExpelled+"%w", cause))
}

// close ends what the engine does for an application that is going.
func (e *Engine) close(a *attached) {
	a.closing = true
	for i, x := range e.active {
		if x == a {
			e.active = append(e.active[:i], e.active[i+1:]...)
			break
		}
	}
	e.sleeper.forget(a.Doorbell())
	a.HangUp()
	a.times.Leave(e.now)
}

// detach tells the core that an application is gone. Its memory is freed when
// nothing refers to it any more (Freed).
func (e *Engine) detach(a *attached, reason error) {
	if a.closing {
		return
	}
	if _, err := a.Publish(); err != nil {
		e.cfg.Log.Debug("last completions not delivered", "rank", a.Rank, "cause", err)
	}
	e.close(a)
	now := e.now
	if reason != nil {
		// Who tells of the job's end compares this with times of launchers (podlife.Blame),
		// and the turn may have waited for a processor since it began.
		now = e.clock()
	}
	e.core.Detach(now, a.id, reason)
}

// regionsMax bounds the regions that sessions have had, 24 bytes each: a number is never used
// again.
const regionsMax = 1 << 20

// Attach gives a session a place. It is for callers that do the turns themselves;
// others use AttachSession.
func (e *Engine) Attach(s *session.Session) error {
	if len(e.regions) > regionsMax {
		return fmt.Errorf("the ranks of this pod have attached %d times, as often as a sidecar keeps account of: start a new job for more programs", len(e.regions)/len(attached{}.regions))
	}
	a := &attached{Session: s, id: e.freeSession(), times: trace.NewTimes(e.now, s.Rank, nil)} // until it is accepted
	a.regions[0], a.regions[1] = e.addRegion(s.Slab()), e.addRegion(s.Arena())
	slab := link.Ref{Region: a.regions[0], Len: uint64(len(s.Slab()))}
	arena := link.Ref{Region: a.regions[1], Len: uint64(len(s.Arena()))}
	err := e.sleeper.watchBell(s.Doorbell())
	if err == nil {
		e.sessions[a.id] = a
		err = e.core.Attach(e.now, a.id, s.Rank, s.Features, slab, arena)
	}
	if p := s.Pieces(); err == nil && p != nil {
		e.core.Bound(a.id, p)
	}
	if err != nil {
		e.sessions[a.id] = nil
		e.sleeper.forget(s.Doorbell())
		e.regions = e.regions[:len(e.regions)-len(a.regions)] // nobody knows their numbers
		return err
	}
	e.showRegions(a)
	e.admit(a)
	e.active = append(e.active, a)
	a.times = e.timesOf(s.Rank)
	e.byRank[s.Rank] = a
	e.cfg.Log.Debug("application attached", "rank", s.Rank)
	return nil
}

// timesOf are a rank's times, which are kept until the end of the job. One that attaches again
// goes on with them.
func (e *Engine) timesOf(rank uint32) *trace.Times {
	for _, t := range e.times {
		if t.Rank() == rank {
			t.Again(e.now)
			return t
		}
	}
	t := trace.NewTimes(e.now, rank, e.cfg.Trace)
	e.times = append(e.times, t)
	return t
}

func (e *Engine) freeSession() core.SessionID {
	for i, a := range e.sessions {
		if a == nil {
			return core.SessionID(i)
		}
	}
	e.sessions = append(e.sessions, nil)
	return core.SessionID(len(e.sessions) - 1)
}

// addRegion numbers a session's memory. A number is never used again: a link
// that reaches for memory that is gone must not find other memory.
func (e *Engine) addRegion(mem []byte) link.Region {
	e.regions = append(e.regions, mem)
	return link.Region(len(e.regions) - 1)
}
