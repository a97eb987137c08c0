package copyeng

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Bounds of a helper.
const (
	helperMax = 64                    // copies whose end is not reported
	spinFor   = 50 * time.Microsecond // how long an idle helper polls before it blocks
	spinLook  = 256                   // polls between two looks at the clock
)

// ErrFault means that memory of a copy was not accessible, for example because its file has
// been truncated.
var ErrFault = errors.New("memory of a copy is not accessible")

// Helper is the channel that copies on a thread of its own. Submit and Poll take no lock,
// and Submit makes a system call only if the thread is blocked.
type Helper struct {
	jobs     [helperMax]job
	reported uint64 // copies whose end is reported; of the engine's goroutine alone

	_     [64]byte // counters that the two threads write are on cache lines of their own
	given atomic.Uint64
	_     [64]byte
	ended atomic.Uint64
	cpu   atomic.Int64 // CPU time of the thread when it last blocked, in nanoseconds
	_     [64]byte

	alert   atomic.Uint64 // the value of ended at which the bell is rung; 0: it is not
	blocked uint32        // futex: 1 while the thread is blocked, or is about to block
	stop    atomic.Bool
	bell    int
	over    chan struct{}
}

// job is a copy. The engine's goroutine writes it before it adds to given, and the thread
// writes err before it adds to ended.
type job struct {
	do       Work // nil: a copy
	dst, src []byte
	token    uint64
	err      error
}

// NewHelper starts a helper. It rings bell, the doorbell of the engine, as Alert asks.
func NewHelper(bell int) *Helper {
	h := &Helper{bell: bell, over: make(chan struct{})}
	go h.run()
	return h
}

// Name returns "helper".
func (h *Helper) Name() string { return "helper" }

// Submit passes a copy to the thread.
func (h *Helper) Submit(dst, src []byte, token uint64) bool { return h.Work(nil, dst, src, token) }

// Work passes work to the thread.
func (h *Helper) Work(do Work, dst, src []byte, token uint64) bool {
	given := h.given.Load()
	if given-h.reported >= helperMax {
		return false
	}
	h.jobs[given%helperMax] = job{do: do, dst: dst[:len(src)], src: src, token: token}
	h.given.Store(given + 1)
	h.rouse()
	return true
}

// rouse wakes the thread if it is blocked.
func (h *Helper) rouse() {
	if atomic.LoadUint32(&h.blocked) != 0 && atomic.SwapUint32(&h.blocked, 0) != 0 {
		_ = wake.Wake(&h.blocked) // cannot fail: the word exists
	}
}

// Poll reports the copies that have ended.
func (h *Helper) Poll(done func(token uint64, err error)) (n int) {
	for ended := h.ended.Load(); h.reported < ended; n++ {
		j := &h.jobs[h.reported%helperMax]
		token, err := j.token, j.err
		*j = job{} // keeps no memory alive
		h.reported++
		done(token, err)
	}
	return n
}

// Pending returns the number of copies whose end is not reported.
func (h *Helper) Pending() int { return int(h.given.Load() - h.reported) }

// Alert makes the thread ring the bell once when n copies have ended whose end is not
// reported; it returns true, and the bell stays silent, if they have ended already. With 0
// the bell is not rung any more, but a ring may be on its way.
func (h *Helper) Alert(n int) (already bool) {
	if n == 0 {
		h.alert.Store(0)
		return false
	}
	h.alert.Store(h.reported + uint64(n))
	if h.ended.Load() < h.reported+uint64(n) {
		return false
	}
	h.alert.Store(0)
	return true
}

// Close ends the thread after the copy that it is making.
func (h *Helper) Close() error {
	h.stop.Store(true)
	h.rouse()
	<-h.over
	return nil
}

// CPU returns the CPU time of the thread, as it was when the thread last blocked.
func (h *Helper) CPU() time.Duration { return time.Duration(h.cpu.Load()) }

// run makes the copies in order.
func (h *Helper) run() {
	defer close(h.over)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	debug.SetPanicOnFault(true)
	for at := uint64(0); h.await(at); at++ {
		j := &h.jobs[at%helperMax]
		j.err = j.run()
		h.ended.Store(at + 1)
		if a := h.alert.Load(); a != 0 && at+1 >= a && h.alert.CompareAndSwap(a, 0) {
			_ = wake.Ring(h.bell) // an error means that the engine has closed it, and waits for nothing
		}
	}
}

// await waits until the copy number at is submitted. It returns false if the helper is
// closed.
func (h *Helper) await(at uint64) bool {
	var begun time.Time
	for polls := 0; ; polls++ {
		switch {
		case h.stop.Load():
			return false
		case h.given.Load() > at:
			return true
		case polls%spinLook != 0:
		case polls == 0:
			begun = time.Now()
		case time.Since(begun) >= spinFor:
			h.block(at)
			polls = -1
		}
	}
}

// block blocks the thread until the copy number at is submitted or the helper is closed, or
// for a shorter time.
func (h *Helper) block(at uint64) {
	h.cpu.Store(int64(ThreadCPU()))
	atomic.StoreUint32(&h.blocked, 1)
	if h.given.Load() <= at && !h.stop.Load() {
		_ = wake.Wait(&h.blocked, 1, 0) // the caller polls again in any case
	}
	atomic.StoreUint32(&h.blocked, 0)
}

// ThreadCPU returns the CPU time of the calling thread.
func ThreadCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0 // cannot fail: the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run copies or works, and turns a fault of the memory (debug.SetPanicOnFault) into an error.
func (j *job) run() (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w: %w", ErrFault, p)
		default:
			panic(p)
		}
	}()
	if j.do != nil {
		return j.do(j.dst, j.src)
	}
	copy(j.dst, j.src)
	return nil
}
