package mpi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Bounds of the wait for a sidecar.
const (
	awaitPause = 5 * time.Millisecond // delay between attempts to connect to the sidecar's socket
	awaitText  = 1 << 10              // most bytes of the text that names what the sidecar waits for
)

// launcher returns the sidecar's socket for launchers.
func launcher(socket string) management { return management(socket + names.LaunchSuffix) }

// Await waits until the sidecar with a socket for applications is ready for its ranks. A
// sidecar that is starting may wait for an event outside of its pod, for any length of
// time; report is called with a description of it whenever that changes. Await returns an
// error if ctx has ended, or the sidecar has sent nothing for the time silence, for example
// because there is no sidecar.
func Await(ctx context.Context, socket string, silence time.Duration, report func(awaits string)) error {
	w := &wait{socket: socket, silence: silence, report: report, heard: time.Now()}
	for {
		ready, err := w.ask(ctx)
		switch {
		case ready:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("ended while waiting for the sidecar at %s%w", w.socket, w.cause(context.Cause(ctx)))
		case time.Since(w.heard) > silence:
			return fmt.Errorf("no sidecar at %s within %v: is it running, and is the directory shared?%w", w.socket, w.silence, w.cause(err))
		}
		pause := time.NewTimer(awaitPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// wait is a wait for a sidecar.
type wait struct {
	socket  string
	silence time.Duration
	report  func(awaits string)
	heard   time.Time // when the last line was received
	awaits  string    // what the sidecar waits for; empty: nothing
}

// ask reads what the sidecar waits for until it is ready, or the connection ends.
func (w *wait) ask(ctx context.Context) (ready bool, err error) {
	conn, err := launcher(w.socket).dial(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A sidecar of a release without this socket has the one for applications, which
		// other releases open later.
		_, other := os.Stat(w.socket)
		return other == nil, err
	case err != nil:
		return false, err
	}
	defer func() { _ = conn.Close() }() // no further request follows
	// A deadline is not enough: listen sets one before each read, and could replace it.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetWriteDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return false, err
	}
	if _, err := fmt.Fprintln(conn, "cmd=outrigger_wait"); err != nil {
		return false, err
	}
	return w.listen(conn)
}

func (w *wait) listen(conn net.Conn) (ready bool, err error) {
	in := bufio.NewReaderSize(conn, awaitText)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(w.silence)); err != nil {
			return false, err
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return false, fmt.Errorf("the sidecar has ended the wait: %w", err)
		}
		text := strings.TrimSpace(string(line))
		if text == "cmd=outrigger_wait rc=0" {
			return true, nil
		}
		awaits, waits := strings.CutPrefix(text, "cmd=outrigger_waits")
		if !waits {
			return false, fmt.Errorf("unexpected answer of the sidecar: %q", text)
		}
		w.heard = time.Now()
		if awaits = strings.TrimSpace(awaits); awaits != w.awaits {
			w.awaits = awaits
			w.report(awaits)
		}
	}
}

// cause returns why a wait has ended, and what the sidecar has waited for.
func (w *wait) cause(err error) error {
	if w.awaits != "" {
		return fmt.Errorf(" (%w; the sidecar has said that it waits for %s)", err, w.awaits)
	}
	return fmt.Errorf(" (%w)", err)
}
