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

// Session is this process's attachment to its sidecar. Its methods, and those
// of what is made from it, may be called by several goroutines at once.
type Session struct {
	rank, ranks, pod, pods int
	control                *segment.Control
	slabMem, arenaMem      []byte
	doorbell               int
	device                 device
	conn                   *net.UnixConn
	eager                  int
	sharesGroups           bool // the sidecar knows a communicator by another
	hasEpochs              bool // and post-start-complete-wait
	hasTypes               bool // messages carry the type of their elements
	wait                   waitPolicy
	begun                  time.Time
	world                  *Comm
	arena                  arena
	gone                   atomic.Bool // the sidecar's end of the socket is closed
	behind                 atomic.Bool // the ring had no room for what completions ask for
	watched                chan struct{}
	answers                chan shm.Answer // about pieces of the arena, by watch

	told told // has a mutex of its own

	mu        sync.Mutex // guards what follows, and every access to the shared memory but the users' below
	submit    *ring.Producer
	complete  *ring.Consumer
	ops       opTable
	slab      slab
	todo      todo
	place     place
	silent    uint64 // silent sends submitted
	retired   uint64 // of them, as last seen
	failed    bool
	closing   bool
	ending    bool // Close has its sends behind it: nothing may begin any more
	closed    bool
	users     int    // goroutines that use the shared memory without holding mu
	roused    uint32 // how often blocked goroutines were woken from here
	locks     map[lockPlace]lockState
	exposed   map[uint32]span // memory of windows, by their numbers
	exposures []*Exposed      // by number; nil: free
	numbers   uint32          // next communicator or window number that is free here
	late      error           // failure of a send whose caller had its buffer back already
	reason    string          // why the job failed, kept when the memory is gone
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
		place: place{wanted: w.Features&shm.FeaturePlace != 0}, device: device{fd: -1, why: cmp.Or(w.Text, "the sidecar does not know of it")},
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

// World is the communicator of all ranks of the job.
func (s *Session) World() *Comm { return s.world }

// Pod is the number of this rank's pod, and Pods how many the job has.
func (s *Session) Pod() int { return s.pod }

// Pods is how many pods the job has.
func (s *Session) Pods() int { return s.pods }

// watch hands on what the sidecar answers about pieces of the arena. It waits for the end of
// the socket, which is the sidecar's death notice, and wakes all goroutines that are blocked.
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
			heard = false // it was not asked for, and nothing else is ever sent
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

// rouse wakes every goroutine that is blocked. Each looks again by itself.
// Preconditions: s.mu is held, and the session is not released.
func (s *Session) rouse() {
	s.roused++
	word := s.control.Waiting()
	if atomic.LoadUint32(word) == 0 {
		return
	}
	atomic.StoreUint32(word, 0)
	_ = wake.Wake(word) // finds nobody, or wakes everybody
}

// Abort ends the whole job: every other rank's calls fail with ErrAborted and
// the reason, and the launcher reports code as the exit code, however this process ends:
// 1 to 255; of other numbers the low 8 bits, or 1 if they are 0. Of reason a line is told,
// of up to 200 bytes.
func (s *Session) Abort(code int, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := shm.Descriptor{Op: shm.OpAbort, Status: shm.Status(uint32(code))}
	if !s.closed && reason != "" {
		if slot, ok := s.slab.slot(); ok {
			n := copy(s.slabMem[slot:slot+s.slab.slotBytes], reason)
			d.Class = shm.ClassSlab
			d.SetBody(slot, uint64(n), 0, 0) // the slot is never used again; nor is the job
		}
	}
	if err := s.push(&d); err != nil {
		return s.fail("abort", s.world, AnySource, AnyTag, 0, err)
	}
	return nil
}

func (s *Session) fail(what string, c *Comm, peer, tag, bytes int, err error) error {
	e := &Error{Op: what, Rank: s.rank, Peer: peer, Tag: tag, Bytes: bytes, Err: err}
	if c != nil {
		if e.Rank = c.rank; c.ranks != nil {
			e.comm = c
		}
	}
	if !consequence(err) {
		s.told.tell(s.control, 0, e.what())
	}
	return e
}

// consequence reports that an error is not what a program has ended for, if it ends then: the
// job has failed already, or the program's own context has ended.
func consequence(err error) bool {
	for _, of := range []error{ErrAborted, ErrClosed, ErrCancelled, ErrSidecarGone, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// told is what the sidecar is told of this rank's last error, for the verdict if its process
// then ends without Close. It has a mutex of its own: errors are made with and without the
// session's.
type told struct {
	mu       sync.Mutex
	unmapped bool
}

func (t *told) tell(c *segment.Control, absent uint32, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c != nil && !t.unmapped {
		c.SetLastError(absent, text)
	}
}

// end is the last moment at which the session's memory is there.
func (t *told) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unmapped = true
}
