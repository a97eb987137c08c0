package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// socketPollInterval is how many calls of Poll pass between two polls of the sockets and
// of the device's events: epoll_wait costs more than an empty Poll.
const socketPollInterval = 256

// noOwner is the owner of a descriptor that is not a peer's socket.
const noOwner = -1

// watcher watches the descriptors that wake the engine: the sockets of peers, the
// stream's descriptor, and those of the device for completions and events.
type watcher struct {
	epoll  int // descriptor of the epoll instance; -1: there is none
	events [16]unix.EpollEvent
	polls  int     // calls of Poll since the last poll of the descriptors
	check  bool    // the next Poll polls the descriptors
	faults []fault // events of the device that are not handled yet
}

func (w *watcher) open() (err error) {
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("verbs: epoll: %w", err)
	}
	return nil
}

// add watches a descriptor of a peer's socket, or of noOwner.
func (w *watcher) add(fd int, owner int32) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: owner, Pad: int32(fd)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("verbs: watching descriptor %d: %w", fd, err)
	}
	return nil
}

// remove stops watching fd. A closed descriptor is not watched either.
func (w *watcher) remove(fd int) { _ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// due reports whether this Poll polls the descriptors, and restarts the count if so.
func (w *watcher) due() bool {
	if w.polls++; !w.check && w.polls < socketPollInterval {
		return false
	}
	w.polls, w.check = 0, false
	return true
}
