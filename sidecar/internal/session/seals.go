package session

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// seals adds the seals of a session's memory after its application has mapped it (LAYOUT
// §2.4). They prevent that pages are taken away: another sidecar of this machine that reads
// the memory would allocate the pages again, and be charged for them. The seals are added
// before the first piece of the arena is allocated, or at the first descriptor.
type seals struct {
	mu             sync.Mutex // guards what follows: the server and the engine add them
	control, arena int        // descriptors; -1: closed
	segmentBytes   int64
	wholeBytes     int64 // size of an arena that is allocated at once; 0: the arena is allocated in pieces
	cause          error // why the seals could not be added
}

// add adds the seals, once. Pages that were taken away before are allocated again: they are
// promised to the session.
func (s *seals) add() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control < 0 {
		return s.cause
	}
	err := errors.Join(segment.Seal(s.control), segment.Seal(s.arena))
	if err == nil {
		_, err = segment.Allocate(s.control, 0, s.segmentBytes)
	}
	if err == nil {
		_, err = segment.Allocate(s.arena, 0, s.wholeBytes)
	}
	if err != nil {
		s.cause = fmt.Errorf("its memory cannot be sealed: %w", err)
	}
	return errors.Join(s.cause, s.closeFiles())
}

// end closes the descriptors if the seals were not added.
func (s *seals) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeFiles()
}

func (s *seals) closeFiles() error {
	if s.control < 0 {
		return nil
	}
	err := errors.Join(unix.Close(s.control), unix.Close(s.arena))
	s.control, s.arena = -1, -1
	return err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written to it
	}
}
