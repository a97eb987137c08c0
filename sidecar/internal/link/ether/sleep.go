package ether

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// sleeper has the descriptors on which the engine sleeps: epoll watches the carrier, the
// sockets of connections, the other link's descriptor, and a timer for the packets.
type sleeper struct {
	epoll  int
	timer  int
	full   bool // epoll reports room of the carrier
	events [64]unix.EpollEvent
}

// notConn is the user data of descriptors that are not sockets of connections; the others
// have their session.
const notConn = 0

func (s *sleeper) open(others ...int) (err error) {
	s.epoll, s.timer = -1, -1
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if s.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	err = s.watch(unix.EPOLL_CTL_ADD, s.timer, unix.EPOLLIN|unix.EPOLLET, notConn)
	for _, fd := range others {
		if err == nil && fd >= 0 {
			err = s.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, notConn)
		}
	}
	return err
}

func (s *sleeper) watch(how, fd int, events uint32, session uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(session)}
	if err := unix.EpollCtl(s.epoll, how, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// wakeIn ends a sleep after a time in nanoseconds; 0: never.
func (s *sleeper) wakeIn(d int64) {
	spec := unix.ItimerSpec{}
	if d != 0 {
		spec.Value = unix.NsecToTimespec(max(d, 1))
	}
	_ = unix.TimerfdSettime(s.timer, 0, &spec, nil) // fails only for values that are not used
}

func (s *sleeper) close() error {
	err := error(nil)
	for _, fd := range []int{s.epoll, s.timer} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// ended is the event that is always awaited.
const ended = uint32(unix.EPOLLRDHUP)

// wanted returns the events of the socket that Poll has to learn of.
func (c *conn) wanted() uint32 {
	want := ended
	if c.pipe.waiting {
		want |= unix.EPOLLOUT
	}
	if c.pipe.dst != nil {
		want |= unix.EPOLLIN
	}
	return want
}

// setEvents tells epoll which events are awaited.
func (l *Link) setEvents() {
	kept := l.watched[:0]
	for _, c := range l.watched {
		if c.gone {
			continue
		}
		want := c.wanted()
		if want != c.events {
			c.events = want
			if err := l.sleeper.watch(unix.EPOLL_CTL_MOD, c.pipe.fd, want, c.session); err != nil {
				c.fail(link.Broken(err))
			}
		}
		if c.watch = want != ended; c.watch {
			kept = append(kept, c)
		}
	}
	l.watched = kept
	fd := l.out.carrier.descriptor()
	if fd < 0 || l.sleeper.full == l.out.full() {
		return
	}
	l.sleeper.full = l.out.full()
	events := uint32(unix.EPOLLIN)
	if l.sleeper.full {
		events |= unix.EPOLLOUT
	}
	_ = l.sleeper.watch(unix.EPOLL_CTL_MOD, fd, events, notConn) // the timer of the packets ends the sleep otherwise
}

// clearError takes the error of the carrier's socket, such as that of an interface that is
// down: epoll reports it until then, and the engine would not sleep.
func (l *Link) clearError() {
	if fd := l.out.carrier.descriptor(); fd >= 0 {
		_, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR) // its packets are lost, and sent again
	}
}

// FD returns a descriptor that is readable when Poll would find work, after a call of Arm.
func (l *Link) FD() int { return l.sleeper.epoll }

// Arm prepares a sleep on FD, and reports whether there is work already.
func (l *Link) Arm() bool {
	l.checkSockets = true
	if len(l.reads.askers) > 0 {
		l.ask()
	}
	l.commit()
	if l.cfg.Stream.Arm() || l.failed > 0 || len(l.fresh)+len(l.reads.forgotten) > 0 {
		return true
	}
	l.setEvents()
	d := int64(0)
	if l.next != 0 {
		d = max(l.next-l.cfg.Clock(), 1)
	}
	l.sleeper.wakeIn(d)
	return false
}
