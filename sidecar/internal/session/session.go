// Package session is a sidecar's side of an attached application: the
// handshake on the Unix socket, the shared memory, and the two rings as the
// engine uses them (api/shm/LAYOUT.md).
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

// Session is one attached application. After Server has handed it to the
// engine it is the engine goroutine's; only HangUp may be called from anywhere.
type Session struct {
	Rank     uint32
	PID      int    // of the application; 0: in another PID namespace, or not known
	Features uint64 // that its client has
	control  *segment.Control
	arena    []byte
	seals    *seals  // of its memory; nil: it has no files
	growth   *growth // of an arena that is allocated in pieces; nil: it is whole
	submit   *ring.Consumer
	complete *ring.Producer
	deaf     bool // the application has ended

	// overflow holds completions that found the ring full. It is bounded by
	// the requests that the application may have open, and while it is not
	// empty nothing more is taken from the application (Next).
	overflow []shm.Descriptor // from kept on
	kept     int
	fresh    bool // something was published since the last Publish
	retired  uint64
	told     uint64       // retired as last stored
	doorbell int          // eventfd; -1: none
	files    [2]File      // of slab and arena
	context  link.Context // that it may register memory on; nil: none
	over     atomic.Bool  // it has said goodbye, and nothing of it is open
	forget   func()       // nil: its rank had attached before
	unopened bool         // its client has ended the connection and not read the Welcome; set before SessionGone
	gone     func() bool  // its client has closed the connection; nil: there is none
	hangUp   func()       // makes the server end the connection
	unmap    func() error // gives the memory back; nil: it is somebody else's
}

// New makes a session over memory that is laid out already; Server does, and
// so does the simulator.
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

// Slab is the application's memory for copied payloads.
func (s *Session) Slab() []byte { return s.control.Slab() }

// Arena is the memory that the application allocates from.
func (s *Session) Arena() []byte { return s.arena }

// Pieces are the allocated parts of the arena; nil: all of it is.
func (s *Session) Pieces() *Pieces {
	if s.growth == nil {
		return nil
	}
	return s.growth.pieces
}

// File is where memory of a session is in a descriptor; FD -1: in none.
type File struct {
	FD  int
	Off uint64
}

var noFiles = [2]File{{FD: -1}, {FD: -1}}

// Files are those of the slab and of the arena. They are there while the session is
// being attached.
func (s *Session) Files() [2]File { return s.files }

// TakeContext hands over the context that the application may register memory on;
// nil: it has none, or it was taken.
func (s *Session) TakeContext() link.Context {
	x := s.context
	s.context = nil
	return x
}

// SetContext gives the application a context, for a caller of New who made one.
func (s *Session) SetContext(x link.Context) { s.context = x }

// SetFree replaces how Free gives the memory back, for a caller of New who made
// it.
func (s *Session) SetFree(f func() error) { s.unmap = f }

// Doorbell is the eventfd that the application rings, or -1.
func (s *Session) Doorbell() int { return s.doorbell }

// Deafen says that nobody reads completions any more: the application has ended.
// What it had said before is still to be had by Next.
func (s *Session) Deafen() { s.deaf, s.overflow, s.kept = true, nil, 0 }

// Next copies the application's next descriptor into d. It stops while the
// application does not read its completions.
func (s *Session) Next(d *shm.Descriptor) bool {
	return len(s.overflow) == 0 && s.submit.Pop(d)
}

// Seal seals the memory, when the first descriptor has come: the application has mapped it
// by then. An error means that the application has sealed it in another way; the session
// must end.
func (s *Session) Seal() error {
	if s.seals == nil {
		return nil
	}
	return s.seals.add()
}

// Pending is how many descriptors the application can have published and not
// seen taken: what it may still say once its end has been noticed.
func (s *Session) Pending() int {
	_, n := s.control.SubmitRing()
	return n
}

// Ready reports whether Next would find something.
func (s *Session) Ready() bool { return len(s.overflow) == 0 && s.submit.Ready() }

// Complete publishes a completion, or keeps it until there is room. An error
// means that the application spoilt its ring.
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

// Retire counts n silent sends as taken over.
func (s *Session) Retire(n uint64) {
	s.retired += n
	s.fresh = true
}

// Forget is for a host that undoes an attachment whose Welcome was not read: if it was the first
// of its rank, the rank has never attached, and memory is kept for it again.
func (s *Session) Forget() {
	if s.forget != nil {
		s.forget()
	}
}

// Unopened reports that the client of a session that is gone (Host) has not read its Welcome, as
// one whose wait for it has ended just then: it has done nothing as its rank.
func (s *Session) Unopened() bool { return s.unopened }

// SetFailure stores why the job failed, or why this session is ended.
func (s *Session) SetFailure(text string) { s.control.SetFailure(text) }

// Publish ends a turn: kept completions go out as far as there is room, and a
// waiting application is woken. It reports whether completions are left.
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

// Kept reports that completions wait for room in the ring: nobody tells when the
// application has made some.
func (s *Session) Kept() bool { return len(s.overflow) > 0 }

// Unpublished reports that Publish has something to tell.
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

// Idle hands everything read back to the application; for the end of a busy
// stretch.
func (s *Session) Idle() { s.submit.Release() }

// Place is where the application's thread says that it is.
func (s *Session) Place() shm.Place { return s.control.Place() }

// LastError is what the application's last call that failed says, one line of it, and one
// more than the rank that had left before a collective of it ended.
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

// Tags is how the application's MPI makes its tags (LAYOUT §8.2).
func (s *Session) Tags() uint32 { return s.control.Tags() }

// Unblocked reports whether the application may go on though nothing comes, as its client
// says: no thread of it is in a call that waits, or one is until a time of its own, or none
// has looked at its completions lately. False where the client says nothing of that.
func (s *Session) Unblocked(now shm.Moment) bool {
	if s.Features&shm.FeaturePlace == 0 {
		return false
	}
	looked := s.control.Looked()
	return !s.control.Place().WaitsForGood() || looked != 0 && !looked.Fresh(now)
}

// Unread reports that completions lie in the ring which the application, in a call that
// waits, has not taken. False where its client does not say what it has taken.
func (s *Session) Unread() bool {
	said := s.control.Looked() != 0 && s.control.Place().Waits()
	return len(s.overflow) > 0 || said && s.complete.Unread()
}

// SetSleeping tells the application whether it has to ring.
func (s *Session) SetSleeping(on bool) { s.control.SetSleeping(on) }

// Over notes that the application has said goodbye, and nothing of it is open any more: its
// rank may attach again.
func (s *Session) Over() { s.over.Store(true) }

// Gone reports that the client has closed its connection, by a system call.
func (s *Session) Gone() bool { return s.gone != nil && s.gone() }

// HangUp ends the connection to the application, whose process learns of it by
// its socket.
func (s *Session) HangUp() {
	if s.hangUp != nil {
		s.hangUp()
	}
}

// Free gives back the session's memory, if the server mapped it, and its
// doorbell. Nothing may refer to them any more.
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
