package outrigger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/uverbs"
)

// Causes for which memory cannot be exposed; Expose returns them together with ErrNotExposed.
var (
	// ErrMemlock: the process may not lock so much memory (RLIMIT_MEMLOCK).
	ErrMemlock = uverbs.ErrMemlock
	// ErrDriver: the RDMA device's driver does not serve this process.
	ErrDriver = uverbs.ErrDriver
)

// device is the RDMA device with which this process registers memory.
type device struct {
	fd             int // file descriptor of the device; -1: there is no device, and why has the reason
	domain, driver uint32
	why            string
}

// Exposed is memory of the program, not from Alloc, that is registered with the RDMA device. While
// it is registered, messages from and into it that are larger than a slot and use RDMA are not
// copied on this side, as those of memory from Alloc. Other messages are copied, as those of any
// private memory.
type Exposed struct {
	s      *Session
	number uint32
	mem    []byte // the registered memory, which this reference keeps alive
	reg    uverbs.Registration
	freed  bool // the memory is freed, or not exposed yet; guarded by Session.mu
}

// Expose registers b until Free or Close. Its pages are locked and count against this process's
// limit of locked memory (ulimit -l). The job has to allow it (docs/rdma.md). On any error messages
// from and into b are copied as before, so a program may ignore the error. The error is
// ErrNotExposed together with ErrMemlock, ErrDriver, ErrTooManyRequests (256 pieces are exposed) or
// another reason.
//
// If the context of a receive into b ends first, b may still be written to until Free has returned.
// After a fork the parent has the registered pages, and the child has copies that are not
// registered.
func Expose[T Number](ctx context.Context, s *Session, b []T) (*Exposed, error) {
	e, err := s.register(ctx, bytesOf(b))
	if err != nil {
		return nil, s.fail("expose", s.world, AnySource, AnyTag, len(b)*sizeOf[T](), fmt.Errorf("%w: %w", ErrNotExposed, err))
	}
	return e, nil
}

var errInAlloc = errors.New("it is memory from Alloc, which need not be exposed")

func (s *Session) register(ctx context.Context, mem []byte) (*Exposed, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if s.device.fd < 0 {
		return nil, errors.New(s.device.why)
	}
	if len(mem) == 0 {
		return nil, ErrInvalid
	}
	if _, in := s.inArena(mem); in {
		return nil, errInAlloc
	}
	reg, err := uverbs.Register(s.device.fd, s.device.domain, s.device.driver, mem)
	if err != nil {
		return nil, err
	}
	e := &Exposed{s: s, mem: mem, reg: reg}
	if err = s.numberExposed(e); err == nil {
		if err = s.announce(ctx, e); err == nil {
			return e, nil
		}
	}
	return nil, errors.Join(err, uverbs.Deregister(s.device.fd, s.device.driver, reg))
}

// numberExposed allocates a number for e. Messages do not use e before announce has created it in
// the sidecar.
func (s *Session) numberExposed(e *Exposed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.exposures, nil)
	if at < 0 {
		if at = len(s.exposures); at == shm.MaxExposures {
			return fmt.Errorf("%w: %d pieces are exposed", ErrTooManyRequests, at)
		}
		s.exposures = append(s.exposures, nil)
	}
	e.number, e.freed = uint32(at), true
	s.exposures[at] = e
	return nil
}

// announce creates e in the sidecar. If the context ends first, the answer still arrives, and the
// number is free again after the sidecar has removed e (noteExposure).
func (s *Session) announce(ctx context.Context, e *Exposed) error {
	d := shm.Descriptor{Op: shm.OpExpose}
	d.SetBody(e.reg.Addr, uint64(len(e.mem)), uint64(e.number), uint64(e.reg.Lkey)|uint64(e.reg.Rkey)<<32)
	r, err := s.startExposure(ctx, "expose", e, &d)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.exposures[e.number] = nil
		return err
	}
	_, err = r.awaitWhole(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.freed {
		return err
	}
	return nil // even if the context has ended at the same time
}

// startExposure submits a request about e.
func (s *Session) startExposure(ctx context.Context, what string, e *Exposed, d *shm.Descriptor) (Request, error) {
	if err := s.enterCall(ctx); err != nil {
		return Request{}, err
	}
	defer s.mu.Unlock()
	o, r, err := s.begin(what, s.world, AnySource, AnyTag, len(e.mem))
	if err != nil {
		return Request{}, err
	}
	o.exposure, o.unexposes = e, d.Op == shm.OpUnexpose
	return s.submitOp(r, o, d)
}

// noteExposure handles the completion of a request about an exposure, even if its caller has given
// up. The number is free when the sidecar does not have the exposure. An exposure that was made
// after its caller had given up is removed again.
// Preconditions: s.mu is held.
func (s *Session) noteExposure(o *op, status shm.Status) {
	e := o.exposure
	switch over := status == shm.StatusOK == o.unexposes; {
	case over:
		s.exposures[e.number] = nil
	case o.unexposes: // the job has failed, and exposures do not matter any more
	case o.detached:
		s.todo.exposures.push(e)
	default:
		e.freed = false
	}
}

// unexpose removes an exposure whose caller has given up.
// Preconditions: s.mu is held, and the ring has room.
func (s *Session) unexpose(e *Exposed) error {
	o, id, err := s.ops.alloc()
	if err != nil {
		return nil // the only consequence is that the number stays in use
	}
	o.what, o.comm, o.peer, o.tag, o.detached = "free of exposed memory", s.world, AnySource, AnyTag, true
	o.exposure, o.unexposes = e, true
	d := unexposeOf(e)
	d.Req = id
	if err := s.push(&d); err != nil {
		s.drop(id, o)
		return err
	}
	return nil
}

func unexposeOf(e *Exposed) shm.Descriptor {
	d := shm.Descriptor{Op: shm.OpUnexpose}
	d.SetBody(0, 0, uint64(e.number), 0)
	return d
}

// Free ends the registration after the messages that use it have ended. The memory is private memory
// again.
func (e *Exposed) Free(ctx context.Context) error {
	s := e.s
	if err := s.enter(); err != nil {
		return s.fail("free of exposed memory", s.world, AnySource, AnyTag, len(e.mem), err)
	}
	defer s.leave()
	s.mu.Lock()
	over := e.freed
	e.freed = true
	s.mu.Unlock()
	if over {
		return s.fail("free of exposed memory", s.world, AnySource, AnyTag, len(e.mem), fmt.Errorf("%w: it is not exposed any more", ErrInvalid))
	}
	err := s.forget(ctx, e)
	// Whether that has failed or not, from here on the device does not access the memory.
	if more := uverbs.Deregister(s.device.fd, s.device.driver, e.reg); more != nil {
		err = errors.Join(err, more)
	}
	return err
}

// forget removes e from the sidecar after no message uses it any more. If the context ends first,
// the sidecar still does so.
func (s *Session) forget(ctx context.Context, e *Exposed) error {
	d := unexposeOf(e)
	r, err := s.startExposure(ctx, "free of exposed memory", e, &d)
	if err == nil {
		_, err = r.awaitWhole(ctx)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.todo.exposures.push(e)
	}
	return s.fail("free of exposed memory", s.world, AnySource, AnyTag, len(e.mem), err)
}

// exposedAt returns the address of b in exposed memory, of class exposed (LAYOUT §4.2).
// Preconditions: s.mu is held.
func (s *Session) exposedAt(b []byte) (uint64, bool) {
	for _, e := range s.exposures {
		if e == nil || e.freed {
			continue
		}
		if off, ok := partOfMemory(b, e.mem); ok {
			return uint64(e.number)<<shm.ExposureShift | off, true
		}
	}
	return 0, false
}

// closeDevice ends all registrations: the device accesses no memory of this process afterwards.
func (s *Session) closeDevice() error {
	if s.device.fd < 0 {
		return nil
	}
	var err error
	for _, e := range s.exposures {
		if e != nil && !e.freed {
			err = errors.Join(err, uverbs.Deregister(s.device.fd, s.device.driver, e.reg))
		}
	}
	s.exposures = nil
	err = errors.Join(err, unix.Close(s.device.fd))
	s.device.fd = -1
	return err
}
