package rdmavm

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// slice is the shortest time slice that Linux has.
const slice = 100_000 // in nanoseconds

// begin starts the emulator. If the run has TSC set, the emulator's threads get the shortest
// time slice. Otherwise, a processor of the machine that polls for a packet would keep a CPU
// of the host for a whole slice, 4 ms, before the thread that delivers the packet runs on it.
// This needs Linux 6.12 or newer; sched_setattr(2) of older versions has no effect.
func (r *Run) begin(qemu *exec.Cmd) error {
	if !r.TSC {
		return qemu.Start()
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread is never unlocked, so that it ends with the goroutine
		attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Runtime: slice}
		if err := unix.SchedSetAttr(0, attr, 0); err != nil {
			started <- err
			return
		}
		started <- qemu.Start()
	}()
	return <-started
}
