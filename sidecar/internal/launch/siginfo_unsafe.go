package launch

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is siginfo_t as waitid fills it: three ints, and after them, aligned like a
// pointer, the union that begins with si_pid.
type siginfo struct {
	signo, errno, code int32
	union              [0]uintptr
	child              int32
	_                  [112]byte
}

func (s *siginfo) info() *unix.Siginfo { return (*unix.Siginfo)(unsafe.Pointer(s)) }

// pid returns 0 if no child has ended.
func (s *siginfo) pid() int { return int(s.child) }
