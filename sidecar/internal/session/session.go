// Package session is a sidecar's side of an attached application: the handshake on the Unix
// socket, the shared memory, and the two rings as the engine uses them (api/shm/LAYOUT.md).
//
// A connection is admitted (Server.receive), sends its Hello, claims its rank
// (Server.claimRank), is attached by the Host, and receives its Welcome. From then on the
// goroutine of the connection serves requests for pieces of the arena, and the engine
// goroutine owns the Session. When the socket closes, the host is told (Host.SessionGone),
// and the claim ends when it has been.
package session

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Session is one attached application. After Server has passed it to the engine, the engine
// goroutine owns it; only HangUp may be called from any goroutine.
type Session struct {
	Rank     uint32
	PID      int    // process ID of the application; 0: unknown, or in another PID namespace
	Features uint64 // feature bits of the application's client
	control  *segment.Control
	arena    []byte
	seals    *seals  // seals of the session's memory; nil: the memory has no files
	growth   *growth // growth of an arena that is allocated in pieces; nil: the whole arena is allocated
	submit   *ring.Consumer
	complete *ring.Producer
	deaf     bool // the application has ended: completions are dropped

	// overflow holds completions that found the ring full. The requests that the
	// application may have open bound it, and while it is not empty no descriptor is taken
	// from the application (Next).
	overflow []shm.Descriptor // the completions from index kept on are not published yet
	kept     int              // index in overflow of the first completion that is not published
	fresh    bool             // a completion was published or a send retired since the last Publish
	retired  uint64
	told     uint64       // value of retired last stored in the segment
	doorbell int          // eventfd; -1: none
	files    [2]File      // files of the slab and of the arena
	context  link.Context // context on which the session may register memory; nil: none
	over     atomic.Bool  // the session has detached, and none of its operations is open
	forget   func()       // nil: its rank had attached before
	unopened bool         // the client closed the connection without reading the Welcome; set before SessionGone
	gone     func() bool  // reports whether the client has closed its connection; nil: there is no connection
	hangUp   func()       // makes the server end the connection
	unmap    func() error // frees the memory; nil: the caller of New owns it
}

// New makes a session over memory that is formatted already. It is for Server and for the
// simulator.
func New(control *segment.Control, arena []byte, rank uint32) (*Session, error) {
	s := &Session{Rank: rank, control: control, arena: arena, doorbell: -1, files: noFiles}
	mem, n := control.SubmitRing()
	var err error
	if s.submit, err = ring.NewConsumer(mem, n); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	mem, n = control.CompleteRing()
	if s.complete, err = ring.NewProducer(mem, n); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return s, nil
}

// Slab returns the application's memory for copied payloads.
func (s *Session) Slab() []byte { return s.control.Slab() }

// Arena returns the memory from which the application allocates.
func (s *Session) Arena() []byte { return s.arena }

// Pieces returns the allocated parts of the arena, or nil if all of it is allocated.
func (s *Session) Pieces() *Pieces {
	if s.growth == nil {
		return nil
	}
	return s.growth.pieces
}

// File is the descriptor, and the offset in it, of memory of a session; FD is -1 if there
// is none.
type File struct {
	FD  int
	Off uint64
}

var noFiles = [2]File{{FD: -1}, {FD: -1}}

// Files returns the files of the slab and of the arena. They are valid while the session is
// being attached.
func (s *Session) Files() [2]File { return s.files }

// TakeContext passes the ownership of the context on which the application may register
// memory to the caller. It returns nil if there is none, or it was taken.
func (s *Session) TakeContext() link.Context {
	x := s.context
	s.context = nil
	return x
}

// SetContext sets the application's context, for a caller of New that made one.
func (s *Session) SetContext(x link.Context) { s.context = x }

// SetFree sets the function with which Free frees the memory, for a caller of New that owns
// it.
func (s *Session) SetFree(f func() error) { s.unmap = f }

// SetDoorbell gives a session that New made the eventfd that the application rings. Free closes
// it.
func (s *Session) SetDoorbell(fd int) { s.doorbell = fd }

// Doorbell returns the eventfd that the application rings, or -1.
func (s *Session) Doorbell() int { return s.doorbell }

// Deafen drops completions from now on: the application has ended. Descriptors that it
// published before can still be taken by Next.
func (s *Session) Deafen() { s.deaf, s.overflow, s.kept = true, nil, 0 }

// Next copies the application's next descriptor into d. It reports false while the
// application does not read its completions.
func (s *Session) Next(d *shm.Descriptor) bool {
	return len(s.overflow) == 0 && s.submit.Pop(d)
}

// Seal seals the memory. It is called when the first descriptor has arrived: the
// application has mapped the memory by then. An error means that the application has sealed
// it in another way; the session must end.
func (s *Session) Seal() error {
	if s.seals == nil {
		return nil
	}
	return s.seals.add()
}

// Pending returns how many descriptors the application can have published that were not
// taken.
func (s *Session) Pending() int {
	_, n := s.control.SubmitRing()
	return n
}

// Ready reports whether Next would return a descriptor.
func (s *Session) Ready() bool { return len(s.overflow) == 0 && s.submit.Ready() }

// Complete publishes a completion, or keeps it until the ring has room. An error means that
// the application has corrupted its ring.
func (s *Session) Complete(d *shm.Descriptor) error {
	if s.deaf {
		return nil
	}
	s.fresh = true
	if len(s.overflow) == 0 {
		ok, err := s.complete.Push(d)
		if ok || err != nil {
			return err
		}
	}
	s.overflow = append(s.overflow, *d)
	return nil
}

// Retire counts n silent sends as taken over by the sidecar.
func (s *Session) Retire(n uint64) {
	s.retired += n
	s.fresh = true
}

// Forget undoes an attachment whose Welcome was not read: if it was the first one of its
// rank, the rank has never attached, and memory is reserved for it again.
func (s *Session) Forget() {
	if s.forget != nil {
		s.forget()
	}
}

// Unopened reports whether the client of a session that is gone (Host) has not read its
// Welcome, for example because its timeout expired just then: it has done nothing as its
// rank.
func (s *Session) Unopened() bool { return s.unopened }

// SetFailure stores why the job failed, or why this session ends.
func (s *Session) SetFailure(text string) { s.control.SetFailure(text) }

// Publish ends a turn: it publishes kept completions as far as the ring has room, and wakes
// a waiting application. It reports whether completions are left.
func (s *Session) Publish() (left bool, err error) {
	if len(s.overflow) > 0 {
		if err := s.drain(); err != nil {
			return true, err
		}
	}
	if s.fresh {
		s.fresh = false
		if s.told != s.retired {
			s.told = s.retired
			s.control.SetRetired(s.retired)
		}
		err = s.wakeClient()
	}
	return len(s.overflow) > 0, err
}

// Kept reports whether completions wait for room in the ring. The application does not ring
// when it has made room.
func (s *Session) Kept() bool { return len(s.overflow) > 0 }

// Unpublished reports whether Publish has something to publish.
func (s *Session) Unpublished() bool { return s.fresh }

func (s *Session) drain() error {
	for s.kept < len(s.overflow) {
		ok, err := s.complete.Push(&s.overflow[s.kept])
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		s.kept++
		s.fresh = true
	}
	s.overflow, s.kept = s.overflow[:0], 0
	return nil
}

// Idle returns the read part of the submission ring to the application, at the end of a
// busy stretch.
func (s *Session) Idle() { s.submit.Release() }

// Place returns whether, and with which timeout, the application's thread waits, as it has
// stored it.
func (s *Session) Place() shm.Place { return s.control.Place() }

// LastError returns the first line of the error of the application's last failed call, and
// one more than the rank that had left before a collective of the application ended, or 0.
func (s *Session) LastError() (absent uint32, text string) {
	absent, text = s.control.LastError()
	text, _, _ = strings.Cut(strings.ToValidUTF8(text, ""), "\n")
	return absent, strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// Tags returns how the application's MPI encodes its tags (LAYOUT §8.2).
func (s *Session) Tags() uint32 { return s.control.Tags() }

// Unblocked reports whether the application may go on although no completion arrives, by
// the report of its client: none of its threads is in a call that waits, or the call has a
// timeout of its own, or no thread has polled its completions lately. It is false if the
// client does not report that.
func (s *Session) Unblocked(now shm.Moment) bool {
	if s.Features&shm.FeaturePlace == 0 {
		return false
	}
	looked := s.control.Looked()
	return !s.control.Place().WaitsForGood() || looked != 0 && !looked.Fresh(now)
}

// Acted returns when the application last did more than to repeat probes in vain, by the report
// of its client; 0: the client does not report that.
func (s *Session) Acted() shm.Moment {
	if s.Features&shm.FeaturePlace == 0 {
		return 0
	}
	return s.control.Acted()
}

// Unread reports whether the ring holds completions that the application, in a call that
// waits, has not taken, besides the last ones, of which vain do not count. It is false if the
// client does not report what it has taken.
func (s *Session) Unread(vain uint64) bool {
	said := s.control.Looked() != 0 && s.control.Place().Waits()
	return len(s.overflow) > 0 || said && s.complete.Unread() > vain
}

// SetSleeping tells the application whether it has to ring the doorbell.
func (s *Session) SetSleeping(on bool) { s.control.SetSleeping(on) }

// Over notes that the application has detached and none of its operations is open: its rank
// may attach again.
func (s *Session) Over() { s.over.Store(true) }

// Gone reports whether the client has closed its connection. It makes a system call.
func (s *Session) Gone() bool { return s.gone != nil && s.gone() }

// HangUp ends the connection to the application, whose process learns of it by its socket.
func (s *Session) HangUp() {
	if s.hangUp != nil {
		s.hangUp()
	}
}

// Free frees the session's memory, if the server mapped it, and its doorbell. Nothing may
// refer to them any more.
func (s *Session) Free() error {
	var err error
	if s.doorbell >= 0 {
		err = unix.Close(s.doorbell)
		s.doorbell = -1
	}
	if s.seals != nil {
		err = errors.Join(err, s.seals.end())
	}
	if x := s.TakeContext(); x != nil {
		err = errors.Join(err, x.Close())
	}
	if s.unmap != nil {
		err = errors.Join(err, s.unmap())
		s.unmap = nil
	}
	return err
}
