package admission

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// acceptPause is the pause before another try, in which descriptors or memory may become
// free.
const acceptPause = 20 * time.Millisecond

// temporary are the errors of accept4(2) after which a listener continues: the client has
// gone, or the process or the machine lacks a resource. Meanwhile connections wait in the
// listener's queue.
var temporary = []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

// Accept returns the next connection from accept, a listener's method. It calls warn for
// a temporary error, at most once a second, and tries again; it returns every other
// error, including the listener's end (net.ErrClosed).
func Accept[C net.Conn](accept func() (C, error), warn func(error)) (C, error) {
	often := rate.Sometimes{Interval: time.Second}
	for {
		conn, err := accept()
		if err == nil || !slices.ContainsFunc(temporary, func(p error) bool { return errors.Is(err, p) }) {
			return conn, err
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			err = fmt.Errorf("no descriptor is free for a new connection; raise the limit of open files: %w", err)
		}
		often.Do(func() { warn(err) })
		time.Sleep(acceptPause)
	}
}
