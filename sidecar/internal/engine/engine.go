// Package engine runs the turns of a sidecar: a turn takes descriptors from the
// applications and frames from the links, passes them to the core, and executes the actions
// that the core requests. One goroutine, locked to its thread, owns all state of this
// package; other goroutines post closures to it (inbox). When the engine is made, it reads
// once from link.Abilities what each link can do beyond carrying frames.
//
// A turn is busy or idle. After idle turns the engine polls, then yields, then sleeps until
// a doorbell or a descriptor of a link wakes it (pacer). PrepareSleep, a block on the
// sleeper and CancelSleep make a sleep; simulators and tests that run the turns themselves
// call the same methods. A turn visits the ranks that submitted something lately, or got a
// completion; the others ring (visits).
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// Dialer makes connections to peers. The result arrives by Engine.Connected or
// Engine.ConnectFailed.
type Dialer interface {
	Connect(peer link.Peer)
	Cancel(peer link.Peer)
}

// Recorder keeps protocol events for the report after a failure.
type Recorder interface {
	Record(now int64, kind uint8, peer int32, rank uint32, tag, size, seq uint64)
}

// Config configures an Engine.
type Config struct {
	Core   core.Config
	Local  link.Link       // frames to this sidecar itself
	Copies *copyeng.Copies // what large copies and folds are offloaded to; the engine owns it. nil: nothing
	Remote link.Link       // frames to other sidecars
	Dialer Dialer
	Log    *slog.Logger
	Record Recorder        // nil: nothing is recorded
	Trace  *trace.Recorder // trace of calls, messages and turns; nil: nothing is recorded
	Wait   Wait
	MPI    bool // the ranks may use an MPI, which stores no last error in the segment
	// Heard blocks, for a bounded time, until the sidecar has received all messages of a
	// rank that do not pass through its session, such as an abort requested by its MPI. The
	// engine calls it before it counts the end of a session without a detach, and not on
	// the turn goroutine. If Heard is nil, the engine does not wait.
	Heard func(rank uint32)
	// Failed is called once, on the turn goroutine, when the job has failed.
	Failed func(*core.Failure)
}

// Indexes of the links in Engine.links and Engine.can.
const (
	linkLocal = iota
	linkRemote
)

// Engine runs the turns of one sidecar.
type Engine struct {
	cfg         Config
	core        *mind
	links       [2]link.Link                 // local, remote
	can         [2]link.Abilities            // abilities of links
	regions     [][]byte                     // regions by link.Region
	sessions    []*attached                  // sessions by core.SessionID; nil: free
	departed    map[uint32]link.BufferCounts // counts of ended sessions, by rank
	times       []*trace.Times               // of the ranks that have attached, in order of attachment
	active      []*attached
	visits      visits
	first       int         // intakeAll begins with visits.list[first % its length]
	judgeTurns  int         // turns for which judge may still wait before it ends the sessions in gone; 0: gone is empty
	gone        []*attached // sessions whose sockets have closed, in that order
	byRank      map[uint32]*attached
	reattaching []returning // attachments that wait for the next generation
	joining     map[link.Peer]*joining
	now         int64
	lastGosched int64        // when the turn goroutine last entered Go's scheduler
	lastTurn    atomic.Int64 // when the last turn or sleep began, approximately; for Alive
	asleep      atomic.Bool
	nextTick    int64
	failed      bool
	drained     error // reason of sessions that end while the ranks are told to end; nil: they are not
	clock       func() int64
	inbox       inbox
	sleeper     *sleeper
	turns       Turns
	folds       folds
	slice       slice
	d           shm.Descriptor // scratch of intake; a local variable would escape to the heap
}

// Turns counts what the engine's thread did: busy and idle turns, yields, and sleeps.
type Turns struct{ Busy, Idle, Yields, Sleeps uint64 }

// attached is a session and its state in the engine.
type attached struct {
	*session.Session
	id        core.SessionID
	regions   [2]link.Region
	lends     link.Region // region of memory that the application registers itself; core.RegionNone: it may not
	visited   bool        // it is in the list of visits
	heard     bool        // it submitted something or got a completion, since visits were sorted
	closing   bool        // the core has been told that the session has ended
	ended     bool        // its socket has closed: only the descriptors that it had published are still taken
	drained   bool        // those have been taken
	sealed    bool        // its memory is sealed, since its first descriptor arrived
	remaining int         // most descriptors that are left if ended
	toTake    int         // descriptors to take before a neighbour that has closed its socket is judged
	times     *trace.Times
}

// intakeBatch bounds the descriptors taken from one application in a turn, so that one
// application does not starve the others.
const intakeBatch = 64

// New makes an engine. clock returns nanoseconds since an arbitrary epoch.
func New(cfg Config, clock func() int64) (*Engine, error) {
	e := &Engine{cfg: cfg, clock: clock, links: [2]link.Link{cfg.Local, cfg.Remote}, byRank: map[uint32]*attached{}, joining: map[link.Peer]*joining{}}
	e.can = [2]link.Abilities{cfg.Local.Abilities(), cfg.Remote.Abilities()}
	cfg.Core.Gatherer, cfg.Core.Caster = e.can[linkRemote].Gatherer, e.can[linkRemote].Caster
	if cfg.Copies != nil {
		cfg.Core.Folder = &e.folds
	}
	e.folds.engine = e
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
	e.inbox.doorbell = e.sleeper.doorbell
	cfg.Copies.SetBell(e.sleeper.doorbell)
	e.now = clock()
	e.lastTurn.Store(e.now)
	return e, nil
}

// Close releases what New allocated. The turns must have stopped.
func (e *Engine) Close() error {
	err := e.cfg.Copies.Close() // before the memory that it copies
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

// Turn does one round of all work, and returns the number of pieces of work done.
func (e *Engine) Turn() int {
	e.now = e.clock()
	e.visitSilent()
	work := e.joinLater() + e.runCalls()
	work += e.intakeAll()
	// Frames that applications caused are posted before the links are polled, which costs a
	// system call; frames that the polls cause are posted after it.
	e.flush()
	news := 0
	for _, l := range e.links {
		news += l.Poll(e)
	}
	if e.judgeTurns > 0 {
		e.judge(news > 0)
	}
	work += news + e.core.PollMemory(e.now) + e.folds.poll()
	if e.now >= e.nextTick {
		e.tick()
	}
	work += e.core.Advance(e.now) // also runs what is due by time
	work += e.readmit()
	if e.flush() {
		work++
	}
	for i := 0; i < len(e.visits.list); i++ {
		a := e.visits.list[i]
		// Completions that remain wait until the application reads its ring.
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

// flush posts the core's frames to the links, and reports whether some are left for another
// turn.
func (e *Engine) flush() bool {
	some := e.core.Flush(e.now, e)
	if commit := e.can[linkRemote].Commit; commit != nil {
		commit()
	}
	return some
}

func (e *Engine) tick() {
	e.lastTurn.Store(e.now)
	e.nextTick = e.core.Tick(e.now)
	if e.nextTick == 0 || e.nextTick > e.now+tickMax {
		e.nextTick = e.now + tickMax
	}
	// A timer that is set between two ticks is at most tickMax late.
	e.nextTick = min(e.nextTick, e.now+tickMax)
}

// intakeMax bounds the descriptors taken from all applications in a turn, so that links are
// polled often.
const intakeMax = 256

// intakeEffort bounds the bytes of lists that descriptors make the core read in a turn: the
// lists of communicators and collectives of large jobs would otherwise make a turn long.
const intakeEffort = 64 << 10

// intakeAll takes descriptors from the applications, beginning after the last application
// that was served.
func (e *Engine) intakeAll() int {
	work, limit := 0, e.core.Effort()+intakeEffort
	for i := range len(e.visits.list) {
		if work >= intakeMax || e.core.Effort() >= limit {
			e.first += i
			return work + 1
		}
		if n := len(e.visits.list); n > 0 { // intake may end sessions
			work += e.intake(e.visits.list[(e.first+i)%n])
		}
	}
	return work
}

// intake takes descriptors from one application, and returns their number.
func (e *Engine) intake(a *attached) int {
	n, most, held := 0, intakeBatch, e.core.Held(a.id)
	switch {
	case held: // checked once a batch: a batch is the most that exceeds the core's bound
		most = 0
	case a.ended:
		most = min(most, a.remaining)
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
			break // the collective takes its vectors first
		}
	}
	if n > 0 {
		a.heard = true
	}
	if a.toTake -= n; n == 0 || a.toTake < 0 { // a session that is held could stay so for long
		a.toTake = 0
	}
	if a.ended {
		a.remaining -= n
		a.drained = a.remaining == 0 || n == 0 && !held
	}
	return n
}

// judgeTurnsMax bounds the turns in which judge waits because links delivered frames. It is more
// than the buffers of a socket hold, and a link that always has frames cannot keep the
// session of a rank that vanished alive.
const judgeTurnsMax = 64

// judge ends the sessions of applications whose sockets have closed, after the descriptors
// of their neighbours and the frames of the peers have been handled: a rank that is killed
// because another rank failed is not the cause, and the report of the cause was in a ring
// or a link before the socket closed. Of the sessions that are judged together, the one
// whose socket closed first is the cause of the rest, unless it is held: then it may wait
// for the end of another one.
func (e *Engine) judge(news bool) {
	for _, a := range e.active {
		if a.toTake > 0 {
			return
		}
	}
	if news && e.judgeTurns > 1 {
		e.judgeTurns--
		return
	}
	e.judgeTurns = 0
	later, first := e.gone[:0], true
	for _, a := range e.gone {
		switch {
		case a.closing: // it had detached
		case a.drained && first:
			e.detach(a, e.vanished(a))
		default:
			e.judgeTurns = 1 // its last descriptors, or those of an earlier session, are still to be taken
			first = first && e.core.Held(a.id)
			later = append(later, a)
		}
	}
	clear(e.gone[len(later):])
	e.gone = later
}

// expel ends the session of an application that broke the shared-memory contract (LAYOUT
// §6).
func (e *Engine) expel(a *attached, cause error) {
	if a.closing {
		return
	}
	e.cfg.Log.Warn("application expelled: it broke the shared-memory contract", "rank", a.Rank, "cause", cause)
	a.SetFailure(cause.Error())
	e.detach(a, fmt.Errorf(podlife.TextExpelled+"%w", cause))
}

// close stops serving an application that is leaving.
func (e *Engine) close(a *attached) {
	e.remove(a)
	a.HangUp()
	a.times.Leave(e.now)
}

// remove ends the visits of an application that is leaving.
func (e *Engine) remove(a *attached) {
	a.closing, a.visited = true, false
	isA := func(x *attached) bool { return x == a }
	e.active, e.visits.list = slices.DeleteFunc(e.active, isA), slices.DeleteFunc(e.visits.list, isA)
	e.sleeper.forget(a.Doorbell())
}

// detach reports to the core that an application has gone. Its memory is freed when nothing
// refers to it any more (Freed).
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
		// The failure report compares this time with times of launchers (podlife.Blame),
		// and the turn may have waited for a CPU since it began.
		now = e.clock()
	}
	e.core.Detach(now, a.id, reason)
}

// regionsMax bounds the regions of all sessions so far, 24 bytes each: region numbers are
// never reused.
const regionsMax = 1 << 20

// Attach adds a session to the engine. It is for callers that run the turns themselves;
// other callers use AttachSession.
func (e *Engine) Attach(s *session.Session) error {
	if len(e.regions) > regionsMax {
		return fmt.Errorf("the ranks of this pod have attached %d times, as often as a sidecar keeps account of: start a new job for more programs", len(e.regions)/len(attached{}.regions))
	}
	a := &attached{Session: s, id: e.freeSession(), times: trace.NewTimes(e.now, s.Rank, nil)} // replaced when the session is accepted
	a.regions[0], a.regions[1] = e.addRegion(s.Slab()), e.addRegion(s.Arena())
	slab := link.Ref{Region: a.regions[0], Len: uint64(len(s.Slab()))}
	arena := link.Ref{Region: a.regions[1], Len: uint64(len(s.Arena()))}
	err := e.sleeper.watchBell(s.Doorbell(), int(a.id)+1)
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
		e.regions = e.regions[:len(e.regions)-len(a.regions)] // the numbers are not in use yet
		return err
	}
	e.showRegions(a)
	e.admit(a)
	e.active = append(e.active, a)
	e.visit(a)
	a.times = e.timesOf(s.Rank)
	e.byRank[s.Rank] = a
	e.cfg.Log.Debug("application attached", "rank", s.Rank)
	return nil
}

// timesOf returns the times of a rank, which are kept until the end of the job. A rank that
// attaches again continues them.
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

// addRegion numbers a session's memory. A number is never reused, so that a link that uses
// the number of freed memory does not find other memory.
func (e *Engine) addRegion(mem []byte) link.Region {
	e.regions = append(e.regions, mem)
	return link.Region(len(e.regions) - 1)
}
