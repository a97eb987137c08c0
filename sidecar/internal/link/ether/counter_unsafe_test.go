//go:build offload

package ether

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uncounted are the system calls of Go's runtime, of the test's clock and of output.
var uncounted = []uint32{
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN,
	unix.SYS_SIGALTSTACK, unix.SYS_PRCTL, unix.SYS_TGKILL, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_EXIT, unix.SYS_RESTART_SYSCALL, unix.SYS_CLOCK_GETTIME,
	unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG,
}

// notice is struct seccomp_notif, and verdict struct seccomp_notif_resp (seccomp_unotify(2)).
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type verdict struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// countCalls returns a function that returns how many system calls this thread has made since,
// other than uncounted. The thread must be locked, and stay so: a filter of the kernel reports
// each call to another thread, which counts it and lets it go on.
func countCalls(t *testing.T) func() int {
	t.Helper()
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // number of the call
	for i, nr := range uncounted {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(uncounted) - i), K: nr})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF}, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Error(err)
		return nil
	}
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})))
	if e != 0 {
		t.Errorf("a filter that counts system calls: %v", e)
		return nil
	}
	count := new(atomic.Int64)
	go func() {
		for {
			in := notice{}
			_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&in)))
			if errors.Is(e, unix.EINTR) {
				continue
			}
			if e != 0 { // the thread has ended
				_ = unix.Close(int(fd)) // nothing depends on it
				return
			}
			count.Add(1)
			out := verdict{id: in.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&out))) // fails if the thread has ended
		}
	}()
	return func() int { return int(count.Load()) }
}

// roomToCount gives the test a processor for each of its threads, and no collections: a
// thread whose call waits to be counted keeps its processor, and a collection would wait for
// it.
func roomToCount(t *testing.T) {
	t.Helper()
	procs, percent := runtime.GOMAXPROCS(8), debug.SetGCPercent(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(procs)
	})
}
