//go:build linux && amd64

package instructions

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Descriptors of the stepped process: it writes the number of its thread to the first, and
// runs when it can read the second.
const (
	fdTell = 3
	fdGo   = 4
)

// step runs the test t in another process and counts.
func step(t *testing.T) (counts []int, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer told.Close()
	wait, start, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer start.Close()
	var out bytes.Buffer
	cmd := exec.Command(self, "-test.run="+pattern(t.Name()), "-test.count=1", "-test.timeout=5m")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL} // while it is not traced
	// The collector would wait for threads that are stopped.
	cmd.Env = append(os.Environ(), environment+"=1", "GOGC=off", "GOMEMLIMIT=off", "GODEBUG=asyncpreemptoff=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.ExtraFiles = []*os.File{tell, wait}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = tell.Close() // the other process has them
	_ = wait.Close()
	counts, err = trace(cmd.Process.Pid, told, start)
	if e := cmd.Wait(); e != nil || err != nil {
		return nil, fmt.Errorf("the stepped process: %w", errors.Join(err, e, errors.New(out.String())))
	}
	return counts, nil
}

// pattern returns the pattern of exactly one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// tracer steps through a thread of another process.
type tracer struct {
	pid, tid int
	others   map[int]unix.Signal // stopped threads, with the signals that they get at the end; 0: none
}

// ripOffset is the offset of the register RIP in struct user.
const ripOffset = 16 * 8

// trace counts for the process that writes the number of its thread to told. On an error it
// kills the process.
func trace(pid int, told io.Reader, start io.Writer) (counts []int, err error) {
	runtime.LockOSThread() // only the thread that has attached may trace
	defer runtime.UnlockOSThread()
	x := &tracer{pid: pid, others: map[int]unix.Signal{}}
	if err = x.attach(told, start); err == nil {
		counts, err = x.count()
	}
	if err == nil {
		err = x.release()
	}
	if err != nil {
		x.kill()
	}
	return counts, err
}

// attach attaches to the thread, lets it run to its first mark, and stops all others.
func (x *tracer) attach(told io.Reader, start io.Writer) error {
	line, err := bufio.NewReader(told).ReadString('\n')
	if err != nil {
		return fmt.Errorf("it counts nothing: %w", err)
	}
	tid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	if err := unix.PtraceSeize(tid); err != nil {
		return fmt.Errorf("attaching to the thread: %w", err)
	}
	x.tid = tid
	if _, err := start.Write([]byte{0}); err != nil {
		return err
	}
	switch sig, err := x.wait(); { // the process has no other signals: its runtime does not preempt
	case err != nil:
		return err
	case sig != signalMark:
		return fmt.Errorf("the thread stopped for %v", sig)
	}
	if err := unix.PtraceSetOptions(tid, unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	return x.stopOthers()
}

// count counts until the thread signals that it is over.
func (x *tracer) count() (counts []int, err error) {
	for {
		if _, sig, err := x.run(unix.PTRACE_CONT); err != nil || sig == signalOver {
			return counts, err
		}
		n, sig, err := x.run(unix.PTRACE_SINGLESTEP)
		if err != nil || sig == signalOver { // the function did not return
			return counts, err
		}
		counts = append(counts, n)
	}
}

// run lets the thread run, or step, until it makes a mark. It returns the number of steps and
// the mark.
func (x *tracer) run(how uintptr) (steps int, mark unix.Signal, err error) {
	last := uint64(0)
	for sig := unix.Signal(0); ; {
		if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, how, uintptr(x.tid), 0, uintptr(sig), 0, 0); e != 0 {
			return 0, 0, fmt.Errorf("resuming the thread: %w", e)
		}
		if sig, err = x.wait(); err != nil {
			return 0, 0, err
		}
		switch sig {
		case signalMark, signalOver:
			return steps, sig, nil
		case unix.SIGTRAP:
			sig = 0
			at, err := x.position()
			if err != nil {
				return 0, 0, err
			}
			if at != last { // otherwise it stopped at an iteration of a string instruction
				steps++
			}
			last = at
		}
	}
}

// position returns the address of the next instruction.
func (x *tracer) position() (uint64, error) {
	var b [8]byte
	if _, err := unix.PtracePeekUser(x.tid, ripOffset, b[:]); err != nil {
		return 0, fmt.Errorf("reading the registers: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// wait waits until the thread has stopped, and returns the signal that stopped it.
func (x *tracer) wait() (unix.Signal, error) {
	status, err := waitFor(x.tid)
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("the thread has ended: %#x", int(status))
	}
	return status.StopSignal(), err
}

func waitFor(tid int) (status unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(tid, &status, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}

// stopOthers stops all threads but the one that is traced. It lists them until there is no new
// one, because one that runs may make others.
func (x *tracer) stopOthers() error {
	for stopped := -1; stopped != len(x.others); {
		stopped = len(x.others)
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", x.pid))
		if err != nil {
			return err
		}
		for _, entry := range list {
			tid, err := strconv.Atoi(entry.Name())
			if err != nil {
				return err
			}
			if _, known := x.others[tid]; known || tid == x.tid {
				continue
			}
			if err := x.stop(tid); err != nil {
				return fmt.Errorf("stopping another thread: %w", err)
			}
		}
	}
	return nil
}

// stop stops a thread. It may have stopped for a signal before it stops by the request: then
// it gets the signal at the end.
func (x *tracer) stop(tid int) error {
	if err := unix.PtraceSeize(tid); err != nil {
		return ended(err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return ended(err)
	}
	status, err := waitFor(tid)
	if err != nil || !status.Stopped() {
		return ended(err)
	}
	x.others[tid] = 0
	if int(status)>>16 != unix.PTRACE_EVENT_STOP {
		x.others[tid] = status.StopSignal()
	}
	return nil
}

// ended returns no error for a thread that has ended.
func ended(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ECHILD) {
		return nil
	}
	return err
}

// release lets all threads run freely: the stepped one last, since it could end the process.
func (x *tracer) release() error {
	for tid, sig := range x.others {
		if err := detach(tid, sig); err != nil {
			return err
		}
		delete(x.others, tid)
	}
	return detach(x.tid, 0)
}

func detach(tid int, sig unix.Signal) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(sig), 0, 0); e != 0 {
		return fmt.Errorf("detaching from thread %d: %w", tid, e)
	}
	return nil
}

// kill kills the process. The end of a thread that is traced is the tracer's to receive, and
// the first thread ends last.
func (x *tracer) kill() {
	_ = unix.Kill(x.pid, unix.SIGKILL) // it may have ended
	if x.tid != 0 {
		x.others[x.tid] = 0
	}
	for tid := range x.others {
		for status := unix.WaitStatus(0x7f); tid != x.pid && status.Stopped(); {
			status, _ = waitFor(tid) // 0 after an error
		}
	}
}
