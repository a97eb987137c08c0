package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lookEvery is how many calls of Poll pass between two looks at sockets and faults.
const lookEvery = 256

// ownedByNone is the owner of a descriptor that is no peer's socket.
const ownedByNone = -1

// watcher is what ends a sleep of the engine, and is looked at now and then: the sockets of
// peers, the stream's descriptor, and what the device tells of completions and faults.
type watcher struct {
	epoll  int // -1: there is none
	events [16]unix.EpollEvent
	polls  int     // since the last look
	look   bool    // the next Poll does
	heard  []fault // from the device, to be handled
}

func (w *watcher) open() (err error) {
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("verbs: epoll: %w", err)
	}
	return nil
}

// add watches a descriptor, of a peer's socket or ownedByNone.
func (w *watcher) add(fd int, owner int32) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: owner, Pad: int32(fd)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("verbs: watching descriptor %d: %w", fd, err)
	}
	return nil
}

// remove watches it no more. One that is closed is not watched either.
func (w *watcher) remove(fd int) { _ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// due reports that this Poll looks, and begins to count anew.
func (w *watcher) due() bool {
	if w.polls++; !w.look && w.polls < lookEvery {
		return false
	}
	w.polls, w.look = 0, false
	return true
}
