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
	awaitPause = 5 * time.Millisecond // between looks for its socket
	awaitText  = 1 << 10              // of what it waits for, in bytes
)

// launcher is the sidecar's socket for launchers.
func launcher(socket string) management { return management(socket + names.LaunchSuffix) }

// Await waits until the sidecar with a socket for applications is ready for its ranks. A
// sidecar that starts may wait for something outside of its pod, for any length of time;
// told hears what, whenever that changes. An error: ctx has ended, or the sidecar has said
// nothing for silence, since there is none for example.
func Await(ctx context.Context, socket string, silence time.Duration, told func(awaits string)) error {
	w := &wait{socket: socket, silence: silence, told: told, heard: time.Now()}
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

// wait is one for a sidecar.
type wait struct {
	socket  string
	silence time.Duration
	told    func(awaits string)
	heard   time.Time // when it has last said something
	awaits  string    // what; empty: nothing
}

// ask has the sidecar say what it waits for until it is ready, or the connection ends.
func (w *wait) ask(ctx context.Context) (ready bool, err error) {
	conn, err := launcher(w.socket).dial(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A sidecar of a release without this socket has the one for applications, which
		// others open later.
		_, other := os.Stat(w.socket)
		return other == nil, err
	case err != nil:
		return false, err
	}
	defer func() { _ = conn.Close() }() // nothing more is asked
	// A deadline would not do: listen sets one before each read, and could replace it.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
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
			return false, fmt.Errorf("the sidecar does not say when it is ready: %w", err)
		}
		text := strings.TrimSpace(string(line))
		if text == "cmd=outrigger_wait rc=0" {
			return true, nil
		}
		awaits, waits := strings.CutPrefix(text, "cmd=outrigger_waits")
		if !waits {
			return false, fmt.Errorf("the sidecar says %q", text)
		}
		w.heard = time.Now()
		if awaits = strings.TrimSpace(awaits); awaits != w.awaits {
			w.awaits = awaits
			w.told(awaits)
		}
	}
}

// cause is why a wait has ended, and what the sidecar has waited for.
func (w *wait) cause(err error) error {
	if w.awaits != "" {
		return fmt.Errorf(" (%w; the sidecar has said that it waits for %s)", err, w.awaits)
	}
	return fmt.Errorf(" (%w)", err)
}
