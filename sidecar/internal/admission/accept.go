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

// acceptPause is the rest before another try: for descriptors or memory to become
// free.
const acceptPause = 20 * time.Millisecond

// passing are the failures of accept4(2) after which a listener goes on as before:
// the caller has gone, or the process or the machine is short of something. Who wants
// to come in meanwhile waits in the listener's queue.
var passing = []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

// Accept takes the next connection by accept, a listener's method. A failure that
// passes is told to complain, once a second while it lasts, and ends nothing; another
// one is returned, as is the listener's end (net.ErrClosed).
func Accept[C net.Conn](accept func() (C, error), complain func(error)) (C, error) {
	often := rate.Sometimes{Interval: time.Second}
	for {
		conn, err := accept()
		if err == nil || !slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) }) {
			return conn, err
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			err = fmt.Errorf("no descriptor left for a new connection; raise the limit of open files: %w", err)
		}
		often.Do(func() { complain(err) })
		time.Sleep(acceptPause)
	}
}
