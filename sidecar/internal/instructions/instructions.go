//go:build linux && amd64

package instructions

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Signals by which the stepped thread marks its places. They never arrive: the tracer takes
// them.
const (
	signalMark = unix.SIGUSR1 // the first stops all other threads; then a count begins or ends
	signalOver = unix.SIGUSR2 // no more counts
)

// environment tells a process that it is the stepped one.
const environment = "OUTRIGGER_TEST_INSTRUCTIONS"

// Stepped reports whether this process is the stepped one. Count returns nothing there.
func Stepped() bool { return os.Getenv(environment) != "" }

// Meter counts in the stepped process.
type Meter struct {
	pid, tid int
	began    bool
}

// Count calls run in another process, and returns one number for each call of Meter.Count:
// the instructions of its function. In that process, Count returns nil.
//
// Preconditions: t is not parallel. After its first call of Meter.Count, run waits for no other
// goroutine, and for no lock or channel that another goroutine may be using, since only its
// own thread runs.
func Count(t *testing.T, run func(*Meter)) []int {
	t.Helper()
	if !Stepped() {
		counts, err := step(t)
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := &Meter{pid: unix.Getpid(), tid: unix.Gettid()}
	defer m.end()
	run(m)
	return nil
}

// Count counts the instructions of f.
func (m *Meter) Count(f func()) {
	if !m.began {
		m.begin()
	}
	m.signal(signalMark)
	f()
	m.signal(signalMark)
}

// begin lets the other process stop the other threads of this one, among them that of the
// runtime which asks a goroutine to yield every 10 ms: from now on no step is the
// scheduler's. A request that came before is ignored, because the goroutine is pinned.
func (m *Meter) begin() {
	m.began = true
	var b [1]byte
	if _, err := fmt.Fprintln(os.NewFile(fdTell, "tell"), m.tid); err != nil {
		panic(err)
	}
	if _, err := os.NewFile(fdGo, "go").Read(b[:]); err != nil {
		panic(err)
	}
	pin()
	m.signal(signalMark)
}

func (m *Meter) end() {
	if m.began {
		m.signal(signalOver)
		unpin()
	}
}

// signal sends a signal to the thread. The call is raw: in a call that the scheduler knows of,
// the thread could lose its processor to another thread just before that one is stopped.
func (m *Meter) signal(s unix.Signal) {
	if _, _, e := unix.RawSyscall(unix.SYS_TGKILL, uintptr(m.pid), uintptr(m.tid), uintptr(s)); e != 0 {
		panic(e)
	}
}
