package engine

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence/sockets"
)

// Wait configures how an engine with nothing to do waits. It polls, then polls and yields,
// then sleeps until a doorbell or a socket wakes it (decision 019).
type Wait struct {
	Polls int           // idle turns before the first yield; default 0: yield at once
	Poll  time.Duration // how long to poll before, while no other process computes on the CPU; default 0
	Yield time.Duration // how long to yield before sleeping; default 200 us; negative: never sleep
}

const yieldDefault = 200 * time.Microsecond

// tickMax bounds how late a timer that is set between two ticks can be.
const tickMax = int64(500 * time.Microsecond)

// sleeper is the epoll descriptor on which the engine sleeps.
type sleeper struct {
	epoll    int
	doorbell int // doorbell of the inbox
	events   [64]unix.EpollEvent
}

func newSleeper(links [2]link.Abilities) (*sleeper, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("engine: epoll: %w", err)
	}
	s := &sleeper{epoll: ep, doorbell: -1}
	if s.doorbell, err = wake.NewDoorbell(); err == nil {
		err = s.watchBell(s.doorbell, 0)
	}
	for _, l := range links {
		if l.FD != nil && err == nil {
			err = s.watch(l.FD(), 0, 0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sleeper) close() error {
	err := unix.Close(s.epoll)
	if s.doorbell >= 0 {
		err = errors.Join(err, unix.Close(s.doorbell))
	}
	return err
}

// watchBell makes rings of a doorbell end a sleep. Each ring is an edge of its own: the
// counter is never read, so that no application can block the engine in a read, and a
// wake-up costs no call for each session. Events of the doorbell have the given mark.
func (s *sleeper) watchBell(fd, mark int) error { return s.watch(fd, unix.EPOLLET, mark) }

func (s *sleeper) watch(fd int, how uint32, mark int) error {
	if fd < 0 {
		return nil
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | how, Fd: int32(fd), Pad: int32(mark)}
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("engine: watching descriptor %d: %w", fd, err)
	}
	return nil
}

func (s *sleeper) forget(fd int) {
	if fd >= 0 {
		_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, fd, nil) // an error means that fd was not watched
	}
}

// sleep blocks until a descriptor is readable or a doorbell was rung, at most d. It returns the
// number of events.
func (s *sleeper) sleep(d time.Duration) int {
	n, err := unix.EpollWait(s.epoll, s.events[:], int((d+time.Millisecond-1)/time.Millisecond))
	if err != nil {
		return 0 // a signal: poll again
	}
	return n
}

// poll returns the number of events that there are.
func (s *sleeper) poll() int { return len(sockets.Events(s.epoll, s.events[:])) }
