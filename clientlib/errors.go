package outrigger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// What callers may want to tell apart with errors.Is.
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

// Error is what every function of this package returns when it fails.
type Error struct {
	Op    string // what was tried: "recv", "allreduce", ...
	Rank  int    // this process's rank in the communicator; the text has the world rank, too
	Peer  int    // the other rank there; AnySource when there is none in particular
	Tag   int    // AnyTag when there is none in particular
	Bytes int    // size of the buffer
	Err   error

	comm *Comm // whose ranks these are; nil: they are world ranks
}

func (e *Error) Error() string {
	return fmt.Sprintf("outrigger: rank %s: %s", e.name(e.Rank, " of the communicator"), e.what())
}

// what is the text without the name of this rank.
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

// name is a rank of the communicator, and in brackets what the launcher and others
// call it: the world rank.
func (e *Error) name(rank int, of string) string {
	if e.comm == nil || rank >= e.comm.size {
		return strconv.Itoa(rank)
	}
	return fmt.Sprintf("%d%s (world rank %d)", rank, of, e.comm.world(rank))
}

// bytesText is a size for a person: exact, and from 1 MiB on in words.
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

// part is an error inside of another one of the same rank, which has named it.
type part struct{ of *Error }

func (p part) Error() string { return p.of.what() }
func (p part) Unwrap() error { return p.of }

// partOf makes a part of an error of this rank.
func partOf(err error) error {
	if e, is := err.(*Error); is { //nolint:errorlint // one that wraps it has words of its own
		return part{e}
	}
	return err
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// cause turns a status, and the length that came with it, into an error; nil
// for success, and for a probe that found nothing.
// Preconditions: s.mu is held.
func (s *Session) cause(status shm.Status, length uint64) error {
	switch status {
	case shm.StatusOK, shm.StatusNoMessage:
		return nil
	case shm.StatusTruncated:
		if length == 0 { // a collective of a sidecar that does not hold sizes against each other
			return fmt.Errorf("%w: a rank has sent more than this one expects: their counts disagree", ErrTruncated)
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
		if length == 0 { // bounds of the contract (LAYOUT §5)
			return fmt.Errorf("%w: the sidecar has as much of it open as it may", ErrNoMemory)
		}
		return fmt.Errorf("%w: the sidecar asks for %s of scratch, more than this library counts; use the library and the sidecar of one version", ErrNoMemory, bytesText(length))
	case shm.StatusUnsupported:
		return ErrUnsupported
	case shm.StatusInvalid:
		return ErrInvalid
	}
	return fmt.Errorf("unknown status %d", status)
}

// withFailure adds why the job failed, when the sidecar has said so.
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
