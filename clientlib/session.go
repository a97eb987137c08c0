package outrigger

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Session is the attachment of this process to its sidecar. Its methods, and those of its
// communicators, windows and requests, may be called by several goroutines at once.
type Session struct {
	rank, ranks, pod, pods int
	control                *segment.Control
	slabMem, arenaMem      []byte
	doorbell               int
	device                 device
	conn                   *net.UnixConn
	eager                  int
	sharesGroups           bool // the sidecar can create a communicator from an existing one (shm.FeatureGroups)
	hasEpochs              bool // the sidecar supports post-start-complete-wait (shm.FeatureEpochs)
	hasTypes               bool // messages carry the type of their elements (shm.FeatureTypes)
	wait                   waitPolicy
	begun                  time.Time
	world                  *Comm
	arena                  arena
	gone                   atomic.Bool // the sidecar's end of the socket is closed
	backlog                atomic.Bool // the ring had no room for the work that completions ask for
	watched                chan struct{}
	answers                chan shm.Answer // answers of the sidecar about pieces of the arena, from watch

	lastError lastError // lastError has a mutex of its own

	mu        sync.Mutex // guards the following fields, and every access to the shared memory except that of users
	submit    *ring.Producer
	complete  *ring.Consumer
	ops       opTable
	slab      slab
	todo      todo
	activity  activity
	silent    uint64 // number of silent sends that were submitted
	retired   uint64 // number of silent sends that the engine has taken over, as last read
	failed    bool
	closing   bool
	ending    bool // the sends that Close waits for have completed: no operation may begin
	closed    bool
	users     int    // number of goroutines that use the shared memory without holding mu
	wakeups   uint32 // number of calls of wakeSleepers, which is a part of the waiting word's value
	locks     map[lockKey]lockState
	exposed   map[uint32]span // memory of each window, by the window's number
	exposures []*Exposed      // exposures by number; nil: the number is free
	numbers   uint32          // next number of a communicator or window that is free on this rank
	late      error           // the first error of a send whose call had returned before
	reason    string          // why the job failed, copied before the memory is unmapped
}

func newSession(conn *net.UnixConn, w shm.Welcome, fds []int, policy string) (*Session, error) {
	c, arenaMem, err := mapMemory(&w, fds)
	closeAll(fds[:2])
	if err != nil {
		closeAll(fds[2:])
		return nil, err
	}
	s := &Session{
		rank: int(w.Rank), ranks: int(w.Ranks), pod: int(w.Pod), pods: int(w.Pods),
		control: c, slabMem: c.Slab(), arenaMem: arenaMem, doorbell: fds[2], conn: conn,
		eager: int(w.EagerBytes), sharesGroups: w.Features&shm.FeatureGroups != 0, hasEpochs: w.Features&shm.FeatureEpochs != 0, hasTypes: w.Features&shm.FeatureTypes != 0, watched: make(chan struct{}), answers: make(chan shm.Answer, 1), numbers: 1, begun: time.Now(),
		activity: activity{wanted: w.Features&shm.FeaturePlace != 0}, device: device{fd: -1, why: cmp.Or(w.Text, "the sidecar does not know of it")},
	}
	if len(fds) > 3 {
		s.device = device{fd: fds[3], domain: w.Domain, driver: w.Driver}
	}
	mem, n := c.SubmitRing()
	s.submit, err = ring.NewProducer(mem, n)
	if err == nil {
		mem, n = c.CompleteRing()
		s.complete, err = ring.NewConsumer(mem, n)
	}
	if err == nil {
		err = s.wait.setWait(policy, int(w.Sharers))
	}
	if err == nil {
		err = s.slab.init(len(s.slabMem), s.eager)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	s.arena.init(len(arenaMem))
	if w.Features&shm.FeaturePieces != 0 {
		s.arena.ready, s.arena.pieces = 0, &pieces{conn: conn, answers: s.answers}
	}
	s.world = newWorld(s)
	return s, nil
}

// World returns the communicator of all ranks of the job.
func (s *Session) World() *Comm { return s.world }

// Pod returns the number of this rank's pod.
func (s *Session) Pod() int { return s.pod }

// Pods returns the number of pods of the job.
func (s *Session) Pods() int { return s.pods }

// watch passes on the sidecar's answers about pieces of the arena, until the socket ends, which means
// that the sidecar has ended. Then it wakes all goroutines that are blocked.
func (s *Session) watch() {
	defer close(s.watched)
	b := make([]byte, shm.AnswerBytes+1)
	for heard := true; heard; {
		n, err := s.conn.Read(b)
		if err != nil {
			break
		}
		answer, err := shm.DecodeAnswer(b[:n])
		select {
		case s.answers <- answer:
			heard = err == nil
		default:
			heard = false // an answer without a request: a protocol violation
		}
	}
	s.gone.Store(true)
	close(s.answers)
	_ = wake.Wake(s.control.Waiting()) // Close unmaps the word only after this goroutine's end
}

// enter lets the caller use the shared memory without the mutex, until leave.
func (s *Session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.users++
	return nil
}

func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// wakeSleepers wakes every goroutine that is blocked; each of them polls again.
// Preconditions: s.mu is held, and the session is not released.
func (s *Session) wakeSleepers() {
	s.wakeups++
	word := s.control.Waiting()
	if atomic.LoadUint32(word) == 0 {
		return
	}
	atomic.StoreUint32(word, 0)
	_ = wake.Wake(word) // an error is not possible for a valid word
}

// Abort ends the whole job: every other rank's calls fail with ErrAborted and the reason, and the
// launcher returns code as its exit code, however this process ends. Codes are 1 to 255; of other
// numbers the low 8 bits count, or 1 if they are 0. The first line of reason is reported, up to 200
// bytes.
func (s *Session) Abort(code int, reason string) error {
	if err := s.enterCall(context.Background()); err != nil {
		return s.fail("abort", s.world, AnySource, AnyTag, 0, err)
	}
	defer s.mu.Unlock()
	d := shm.Descriptor{Op: shm.OpAbort, Status: shm.Status(uint32(code))}
	if !s.closed && reason != "" {
		if slot, ok := s.slab.slot(); ok {
			n := copy(s.slabMem[slot:slot+s.slab.slotBytes], reason)
			d.Class = shm.ClassSlab
			d.SetBody(slot, uint64(n), 0, 0) // the slot is not freed: the job ends
		}
	}
	if err := s.push(&d); err != nil {
		return s.fail("abort", s.world, AnySource, AnyTag, 0, err)
	}
	return nil
}

// fail returns an Error for an operation, and records it as the rank's last error.
func (s *Session) fail(what string, c *Comm, peer, tag, bytes int, err error) error {
	e := &Error{Op: what, Rank: s.rank, Peer: peer, Tag: tag, Bytes: bytes, Err: err}
	if c != nil {
		if e.Rank = c.rank; c.ranks != nil {
			e.comm = c
		}
	}
	if !consequence(err) {
		s.lastError.record(s.control, 0, e.what())
	}
	return e
}

// consequence reports whether an error cannot be the cause of the process's end: the job has failed
// before, or the program's own context has ended.
func consequence(err error) bool {
	for _, of := range []error{ErrAborted, ErrClosed, ErrCancelled, ErrSidecarGone, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// lastError writes this rank's last error to shared memory. If the process then ends without Close,
// the job's verdict quotes it. It has a mutex of its own, because errors occur with and without the
// session's mutex held.
type lastError struct {
	mu       sync.Mutex
	unmapped bool
}

// record writes an error. absent is a world rank plus one that a collective misses, or 0.
func (l *lastError) record(c *segment.Control, absent uint32, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c != nil && !l.unmapped {
		c.SetLastError(absent, text)
	}
}

// stop is called before the session's memory is unmapped.
func (l *lastError) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmapped = true
}
