package engine

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// wakeSlice is the time slice that the engine's thread requests from the scheduler while it
// sleeps. With the shortest slice a woken engine runs at once, in place of a rank that
// computes, instead of after the rank's slice; this lets a transfer overlap with
// computation when there are no more CPUs than ranks. The engine's share of the CPU does
// not change. (Linux 6.12, sched_setattr(2) with SCHED_OTHER; older kernels accept and
// ignore it.)
//
// A thread that yields must not keep the short slice: a yield moves a thread behind the
// others by one slice of its own, so that a thread with a short slice would be picked again
// before the ranks that it yields to.
const wakeSlice = 100 * time.Microsecond

// slice is the time slice last requested for the calling thread.
type slice struct {
	short   bool
	refused bool
}

// set requests the short slice or the system's own. It needs no privilege; threads with
// real-time policies are not changed. An error is returned once, and later calls do
// nothing.
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
