package outrigger

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Session is this process's attachment to its sidecar.
type Session struct {
	rank, ranks, pod, pods int
	control                *segment.Control
	slabMem, arenaMem      []byte
	doorbell               int
	conn                   *net.UnixConn
	eager                  int
	wait                   waitPolicy
	world                  *Comm
	arena                  arena
	gone                   atomic.Bool // the sidecar's end of the socket is closed
	watched                chan struct{}

	mu       sync.Mutex // guards what follows
	submit   *ring.Producer
	complete *ring.Consumer
	ops      opTable
	slab     slab
	silent   uint64 // silent sends submitted
	retired  uint64 // of them, as last seen
	failed   bool
	closed   bool
	numbers  uint32 // next communicator or window number that is free here
	late     error  // failure of a send whose caller had its buffer back already
	d        shm.Descriptor
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
		eager: int(w.EagerBytes), watched: make(chan struct{}), numbers: 1,
	}
	mem, n := c.SubmitRing()
	s.submit, err = ring.NewProducer(mem, n)
	if err == nil {
		mem, n = c.CompleteRing()
		s.complete, err = ring.NewConsumer(mem, n)
	}
	if err == nil {
		s.wait, err = parseWait(policy)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	s.arena.init(len(arenaMem))
	s.slab.init(len(s.slabMem), s.eager)
	s.world = newWorld(s)
	return s, nil
}

// World is the communicator of all ranks of the job.
func (s *Session) World() *Comm { return s.world }

// Pod is the number of this rank's pod, and Pods how many the job has.
func (s *Session) Pod() int { return s.pod }

// Pods is how many pods the job has.
func (s *Session) Pods() int { return s.pods }

// watch waits for the end of the socket, which is the sidecar's death notice,
// and wakes whoever is blocked.
func (s *Session) watch() {
	defer close(s.watched)
	var b [1]byte
	_, _ = s.conn.Read(b[:]) // nothing is ever sent; any return is the end
	s.gone.Store(true)
	_ = wake.Wake(s.control.Waiting()) // a failed wake-up finds nobody waiting
}

// closePatience bounds how long Close waits for what is still under way.
const closePatience = 10 * time.Second

// Close says goodbye when everything that was sent has been taken over. Memory
// from Alloc is gone afterwards.
func (s *Session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.fail("close", s.world, AnySource, AnyTag, 0, ErrClosed)
	}
	s.mu.Unlock()
	err := s.waitFor(ctx, func() bool {
		return s.failed || s.ops.detached == 0 && s.silent == s.control.Retired()
	})
	s.mu.Lock()
	if !s.gone.Load() {
		s.d = shm.Descriptor{Op: shm.OpDetach}
		err = errors.Join(err, s.push())
	}
	s.closed = true
	late := s.late
	s.mu.Unlock()
	err = errors.Join(err, late, s.conn.Close())
	<-s.watched
	err = errors.Join(err, s.release())
	if err != nil {
		return s.fail("close", s.world, AnySource, AnyTag, 0, err)
	}
	return nil
}

func (s *Session) release() error {
	return errors.Join(segment.Unmap(s.control.Memory()), segment.Unmap(s.arenaMem), unix.Close(s.doorbell))
}

// Abort ends the whole job: every other rank's calls fail with ErrAborted and
// the reason, and the launcher reports code as the exit code.
func (s *Session) Abort(code int, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.fail("abort", s.world, AnySource, AnyTag, 0, ErrClosed)
	}
	s.d = shm.Descriptor{Op: shm.OpAbort, Status: shm.Status(uint32(code))}
	if slot, ok := s.slab.slot(); ok && reason != "" {
		n := copy(s.slabMem[slot:slot+uint64(s.eager)], reason)
		s.d.Class = shm.ClassSlab
		s.d.SetBody(slot, uint64(n), 0, 0) // the slot is never used again; nor is the job
	}
	if err := s.push(); err != nil {
		return s.fail("abort", s.world, AnySource, AnyTag, 0, err)
	}
	return nil
}

func (s *Session) fail(what string, c *Comm, peer, tag, bytes int, err error) error {
	rank := s.rank
	if c != nil {
		rank = c.rank
	}
	return &Error{Op: what, Rank: rank, Peer: peer, Tag: tag, Bytes: bytes, Err: err}
}
