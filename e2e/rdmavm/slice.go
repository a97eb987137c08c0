package rdmavm

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// slice is the shortest time slice that Linux has.
const slice = 100_000 // ns

// begin starts the emulator; of a run whose clock is the host's, with time slices as
// short as can be, which its threads inherit. A processor of the machine that polls else
// keeps a processor of the host for a whole slice, 4 ms, before the thread comes to it that
// brings the packet that is polled for. (Linux 6.12 on; sched_setattr(2) of older ones
// changes nothing.)
func (r *Run) begin(qemu *exec.Cmd) error {
	if !r.TSC {
		return qemu.Start()
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Runtime: slice}
		if err := unix.SchedSetAttr(0, attr, 0); err != nil {
			started <- err
			return
		}
		started <- qemu.Start()
	}()
	return <-started
}
