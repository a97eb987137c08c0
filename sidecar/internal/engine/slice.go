package engine

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// wakeSlice is the time slice that the engine's thread asks the scheduler for
// while it sleeps. The shortest one makes a woken engine run at once, in place
// of a rank that computes, instead of after that rank's slice; it is what lets
// a transfer hide behind computing when there are no more cores than ranks.
// The engine's share of the processor stays what it was. (Linux 6.12,
// sched_setattr(2) with SCHED_OTHER; older kernels accept and ignore it.)
//
// A thread that yields must not keep it: a yield puts a thread behind the
// others by one slice of its own, so that short ones would be picked again
// and again before the ranks that they yield to.
const wakeSlice = 100 * time.Microsecond

// slice is the time slice of the calling thread, as last asked for.
type slice struct {
	short   bool
	refused bool
}

// set asks for the short slice or the system's own. It needs no privilege;
// real-time policies are left alone. A refusal is returned once.
func (s *slice) set(short bool) error {
	if s.refused || s.short == short {
		return nil
	}
	s.short = short
	err := askSlice(short)
	s.refused = err != nil
	return err
}

func askSlice(short bool) error {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return fmt.Errorf("reading the thread's scheduling: %w", err)
	}
	if attr.Policy != unix.SCHED_NORMAL {
		return nil
	}
	attr.Runtime = 0
	if short {
		attr.Runtime = uint64(wakeSlice)
	}
	if err := unix.SchedSetAttr(0, attr, 0); err != nil {
		return fmt.Errorf("asking for a time slice: %w", err)
	}
	return nil
}
