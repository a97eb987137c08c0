package outrigger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// The causes of errors, for errors.Is.
var (
	ErrTruncated       = errors.New("the message is longer than the buffer")
	ErrCancelled       = errors.New("cancelled")
	ErrPeerFailed      = errors.New("the peer has failed or left")
	ErrAborted         = errors.New("the job has failed")
	ErrSidecarGone     = errors.New("the sidecar has ended")
	ErrClosed          = errors.New("the session is closed")
	ErrNotAllocated    = errors.New("not memory from Alloc, or freed already")
	ErrTooManyRequests = errors.New("too many requests are open; wait for some")
	ErrNoMemory        = errors.New("not enough arena memory")
	ErrInvalid         = errors.New("invalid argument")
	ErrNotExposed      = errors.New("the memory is not exposed, and messages from and into it are copied")
	ErrUnsupported     = errors.New("operation not defined for this type")
)

// Error is the error of every function of this package.
type Error struct {
	Op    string // the operation: "recv", "allreduce", ...
	Rank  int    // this process's rank in the communicator; the text has the world rank, too
	Peer  int    // the other rank in the communicator; AnySource if there is no particular one
	Tag   int    // AnyTag if there is no particular one
	Bytes int    // size of the buffer
	Err   error

	comm *Comm // the communicator of the ranks; nil: they are world ranks
}

func (e *Error) Error() string {
	return fmt.Sprintf("outrigger: rank %s: %s", e.name(e.Rank, " of the communicator"), e.what())
}

// what returns the text without the name of this rank.
func (e *Error) what() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Peer >= 0 {
		fmt.Fprintf(&b, " with rank %s", e.name(e.Peer, ""))
	}
	if e.Tag >= 0 {
		fmt.Fprintf(&b, " tag %d", e.Tag)
	}
	if e.Bytes > 0 {
		fmt.Fprintf(&b, " (%s)", bytesText(uint64(e.Bytes)))
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// name returns a rank of the communicator with its world rank, which the launcher and the sidecar
// use, in brackets.
func (e *Error) name(rank int, of string) string {
	if e.comm == nil || rank >= e.comm.size {
		return strconv.Itoa(rank)
	}
	return fmt.Sprintf("%d%s (world rank %d)", rank, of, e.comm.world(rank))
}

// bytesText formats a size: exactly, and from 1 MiB on in a larger unit as well.
func bytesText(n uint64) string {
	const mebi = 1 << 20
	switch {
	case n < mebi:
		return fmt.Sprintf("%d bytes", n)
	case n%mebi == 0:
		return memory.Text(n)
	}
	return fmt.Sprintf("%s, %d bytes", memory.Text(n), n)
}

// part is an error within another error of the same rank; its text does not name the rank again.
type part struct{ of *Error }

func (p part) Error() string { return p.of.what() }
func (p part) Unwrap() error { return p.of }

// partOf makes a part of an error of this rank.
func partOf(err error) error {
	if e, is := err.(*Error); is { //nolint:errorlint // an error that wraps it has a text of its own
		return part{e}
	}
	return err
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errOpen is the error of an operation that a bound of the sidecar does not permit. It is an ErrNoMemory,
// but the arena has nothing to do with it.
var errOpen error = full{}

type full struct{}

func (full) Error() string        { return "the sidecar has as much of it open as it may" }
func (full) Is(target error) bool { return target == ErrNoMemory }

// beyond returns errOpen with the bound of the operation (LAYOUT §5).
func (o *op) beyond() error {
	const raise = ", or give the sidecar more memory (sidecar.resources)"
	switch o.what {
	case "window":
		return fmt.Errorf("%w: a rank may have 4,096 windows: free some before%s", errOpen, raise)
	case "lock":
		return fmt.Errorf("%w: the ranks of a pod may wait for 65,536 locks of another pod, of which a quarter is divided among them: lock fewer at once", errOpen)
	case "flush":
		return fmt.Errorf("%w: a rank may have 64 flushes of all targets: wait for some before", errOpen)
	}
	return fmt.Errorf("%w: a rank may have 4,096 communicators, and those of a pod different lists of 524,288 ranks, or 16 for each rank of the job: free some before%s", errOpen, raise)
}

// cause returns the error for a status and the length that came with it. It is nil for success, and
// for a probe that has found no message.
// Preconditions: s.mu is held.
func (s *Session) cause(status shm.Status, length uint64) error {
	switch status {
	case shm.StatusOK, shm.StatusNoMessage:
		return nil
	case shm.StatusTruncated:
		if length == 0 { // a collective of a sidecar of an earlier release, which does not report the length
			return fmt.Errorf("%w: a rank has sent more than this rank expects: their counts disagree", ErrTruncated)
		}
		return fmt.Errorf("%w: %s", ErrTruncated, bytesText(length))
	case shm.StatusCancelled:
		return ErrCancelled
	case shm.StatusPeerFailed:
		return s.withFailure(ErrPeerFailed)
	case shm.StatusPeerLeft:
		return fmt.Errorf("%w: it has closed its session", ErrPeerFailed)
	case shm.StatusAborted:
		return s.withFailure(ErrAborted)
	case shm.StatusNoMemory:
		if length == 0 { // a bound of the contract (LAYOUT §5)
			return errOpen
		}
		return fmt.Errorf("%w: the sidecar asks for %s of scratch, more than this library counts; use the library and the sidecar of one version", ErrNoMemory, bytesText(length))
	case shm.StatusUnsupported:
		return ErrUnsupported
	case shm.StatusInvalid:
		return ErrInvalid
	}
	return fmt.Errorf("unknown status %d", status)
}

// withFailure adds the reason why the job has failed, if the sidecar has published one.
// Preconditions: s.mu is held.
func (s *Session) withFailure(err error) error {
	if !s.closed {
		s.reason = s.control.Failure()
	}
	if s.reason != "" {
		return fmt.Errorf("%w: %s", err, s.reason)
	}
	return err
}
