package outrigger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// Config is how to attach. Zero fields are filled in from the environment that the launcher sets.
type Config struct {
	Socket     string // path of the sidecar's socket; default $OUTRIGGER_SOCKET
	Rank       int    // world rank of this process; used only if Socket is set, else $OUTRIGGER_RANK
	ArenaBytes int64  // size of the arena; default $OUTRIGGER_ARENA, else the sidecar's default
	Wait       string // poll, yield or block; default $OUTRIGGER_WAIT, else it polls if there are enough CPUs, then yields, then blocks
}

// openTimeout is how long Open waits while no sidecar listens on the socket, unless its context ends
// before. Tests set another value.
var openTimeout = 30 * time.Second

func (c *Config) complete() error {
	if c.Socket == "" {
		c.Socket = os.Getenv(names.EnvSocket)
		if c.Socket == "" {
			return fmt.Errorf("%w: no sidecar: %s is not set. Start the program with `outrigger run`, or in a pod with a sidecar", ErrInvalid, names.EnvSocket)
		}
		rank, err := strconv.Atoi(os.Getenv(names.EnvRank))
		if err != nil || rank < 0 {
			return fmt.Errorf("%w: %s is %q, want a rank", ErrInvalid, names.EnvRank, os.Getenv(names.EnvRank))
		}
		c.Rank = rank
	}
	if c.ArenaBytes == 0 {
		if text := os.Getenv(names.EnvArena); text != "" {
			n, err := memory.Parse(text, 1)
			if err != nil {
				return fmt.Errorf("%w: %s: %w", ErrInvalid, names.EnvArena, err)
			}
			c.ArenaBytes = n
		}
	}
	if c.Wait == "" {
		c.Wait = os.Getenv(names.EnvWait)
	}
	return nil
}

// Open attaches to the sidecar. It waits until ctx ends, and for at most 30 seconds while no sidecar
// listens on the socket. If one listens and is not ready, Open has no time limit of its own, because
// services outside of the pod that the sidecar needs, such as the issuer of its certificate, may be
// absent for any length of time. If the process of the sidecar is stopped, Open fails after 35 seconds.
//
// A rank may open another session after it has closed the previous one, in the same process or in
// another. The second session has no state of the first one, and no message passes between the two.
// Open then waits, until ctx ends, for the other ranks of the pod to close their sessions. All ranks
// that exchange messages must open the same number of sessions.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	fail := func(err error) (*Session, error) {
		return nil, &Error{Op: "open", Rank: cfg.Rank, Peer: AnySource, Tag: AnyTag, Err: err}
	}
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	conn, err := connect(ctx, cfg.Socket)
	if err != nil {
		return fail(err)
	}
	w, fds, err := attach(ctx, conn, &cfg)
	if err == nil {
		var s *Session
		if s, err = newSession(conn, w, fds, cfg.Wait); err == nil {
			go s.watch()
			return s, nil
		}
	}
	return fail(errors.Join(err, conn.Close()))
}

func connect(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	end := time.Now().Add(openTimeout)
	for {
		conn, err := d.DialContext(ctx, "unixpacket", path)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		switch {
		case errors.Is(err, unix.EAGAIN): // the sidecar listens, and its queue of connections is full
			end = time.Now().Add(openTimeout)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED):
			return nil, fmt.Errorf("connecting to the sidecar: %w", err)
		case time.Now().After(end):
			return nil, fmt.Errorf("no sidecar at %s for %v: %w; start the program with `outrigger run`, or in a pod with a sidecar", path, openTimeout, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("no sidecar at %s: %w (%w)", path, err, ctx.Err())
		}
	}
}

// attach does the handshake (LAYOUT §2).
func attach(ctx context.Context, conn *net.UnixConn, cfg *Config) (w shm.Welcome, fds []int, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	h := shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Rank: uint32(cfg.Rank), ArenaBytes: uint64(cfg.ArenaBytes)}
	if _, err := conn.Write(h.Encode()); err != nil {
		return w, nil, fmt.Errorf("greeting the sidecar: %w", err)
	}
	b, oob := make([]byte, shm.WelcomeBytes), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, err := await(ctx, conn, cfg.Socket, b, oob)
	if err != nil {
		return w, nil, fmt.Errorf("the sidecar did not answer: %w", err)
	}
	if fds, err = rights(oob[:oobn]); err != nil {
		return w, nil, err
	}
	if w, err = shm.DecodeWelcome(b[:n]); err == nil && !w.Accepted {
		err = fmt.Errorf("refused by the sidecar: %s", w.Text)
	}
	want := 3
	if w.Features&shm.FeatureExpose != 0 {
		want = 4
	}
	if err == nil {
		err = checkCount(len(fds), want, flags&unix.MSG_CTRUNC != 0)
	}
	if err != nil {
		closeAll(fds)
	}
	return w, fds, err
}

// await reads the Welcome. It has no time limit while the sidecar runs.
func await(ctx context.Context, conn *net.UnixConn, path string, b, oob []byte) (n, oobn, flags int, err error) {
	for life := (&beat{path: path}); ; {
		if err := conn.SetReadDeadline(time.Now().Add(beatEvery)); err != nil {
			return 0, 0, 0, err
		}
		if ctx.Err() != nil { // its deadline may be the one that was replaced
			return 0, 0, 0, ctx.Err()
		}
		n, oobn, flags, _, err = conn.ReadMsgUnix(b, oob)
		switch {
		case err == nil:
			return n, oobn, flags, conn.SetReadDeadline(time.Time{})
		case ctx.Err() != nil:
			return 0, 0, 0, ctx.Err()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, 0, 0, err
		}
		if err := life.read(); err != nil {
			return 0, 0, 0, err
		}
	}
}

// checkCount compares the number of received descriptors with the number wanted. The kernel drops
// descriptors that a process may not open, and sets a flag (recvmsg(2), MSG_CTRUNC), which is cut.
func checkCount(got, want int, cut bool) error {
	switch {
	case cut && got < want:
		return fmt.Errorf("%d of the sidecar's %d descriptors could be taken: this process may open no more files; raise its limit (ulimit -n)", got, want)
	case cut:
		return fmt.Errorf("the sidecar passed more than %d descriptors, want %d", got, want)
	case got != want:
		return fmt.Errorf("the sidecar passed %d descriptors, want %d", got, want)
	}
	return nil
}

func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, fmt.Errorf("descriptors from the sidecar: %d messages: %w", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, fmt.Errorf("descriptors from the sidecar: %w", err)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // no write is lost by an error
	}
}

// mapMemory maps the control segment and the arena that the sidecar has passed.
func mapMemory(w *shm.Welcome, fds []int) (c *segment.Control, arena []byte, err error) {
	mem, err := segment.Open(fds[0], int(w.SegmentBytes))
	if err != nil {
		return nil, nil, err
	}
	if c, err = segment.Read(mem); err == nil {
		arena, err = segment.Open(fds[1], int(w.ArenaBytes))
	}
	if err != nil {
		return nil, nil, errors.Join(err, segment.Unmap(mem))
	}
	return c, arena, nil
}
