package obs

import (
	"time"

	"golang.org/x/sys/unix"
)

// Process is what the threads of a sidecar have used since it started (getrusage(2)).
type Process struct {
	Seconds float64 `json:"seconds"` // processor time
	Waits   uint64  `json:"waits"`   // context switches because a thread slept
	Yields  uint64  `json:"yields"`  // context switches because another process ran instead, after a yield or by preemption
}

// process returns what this process has used. The report lacks it if the kernel does not tell.
func process() (p Process) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return p
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return Process{Seconds: used.Seconds(), Waits: uint64(u.Nvcsw), Yields: uint64(u.Nivcsw)}
}
