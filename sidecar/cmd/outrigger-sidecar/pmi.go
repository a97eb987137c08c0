package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/peers"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/pmi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// launchProtocol is the ALPN name of the connections that carry what ranks tell
// each other while they start.
const launchProtocol = "outrigger-launch/1"

// meetProtocol is that of those for what some of the pods do together.
const meetProtocol = "outrigger-meet/1"

// execProtocol is that of the connections that carry what an mpirun of the program
// starts in other pods.
const execProtocol = "outrigger-exec/1"

// startTree makes this pod's part of the exchange between pods. The mesh does not
// exist yet; it does when somebody dials.
func (d *daemon) startTree() {
	d.tree = pmi.NewTree(d.o.pod, len(d.doc.Pods), d.doc.Ranks, func(ctx context.Context, pod int) (net.Conn, error) {
		return d.mesh.Open(ctx, link.Peer(pod), launchProtocol)
	})
}

// layout is the ranks by pod.
func (d *daemon) layout() []int {
	layout := make([]int, len(d.doc.Pods))
	for i, p := range d.doc.Pods {
		layout[i] = p.Ranks
	}
	return layout
}

// makeMeetings makes this pod's part in what only some pods do together.
func (d *daemon) makeMeetings() {
	d.meetings = pmi.NewMeetings(d.o.pod, d.layout(), func(ctx context.Context, pod int) (net.Conn, error) {
		return d.mesh.Open(ctx, link.Peer(pod), meetProtocol)
	})
}

func (d *daemon) serveMeeting(ctx context.Context, peer link.Peer, conn net.Conn) error {
	return d.meetings.Serve(ctx, int(peer), conn)
}

func (d *daemon) serveTree(ctx context.Context, peer link.Peer, conn net.Conn) error {
	return d.tree.Serve(ctx, int(peer), conn)
}

// serveExec is a command of another pod for this one.
func (d *daemon) serveExec(ctx context.Context, _ link.Peer, conn net.Conn) error {
	return d.pmi.ServeExec(ctx, conn)
}

// beside are the connections between sidecars that carry no messages of ranks.
func (d *daemon) beside() map[string]peers.Handler {
	if d.o.noPMI {
		return nil
	}
	return map[string]peers.Handler{launchProtocol: d.serveTree, meetProtocol: d.serveMeeting, execProtocol: d.serveExec}
}

// socketPathMax is the longest path of a Unix socket: sun_path less its end (unix(7)).
const socketPathMax = 107

// listenLocal opens a socket for programs of this pod. A sidecar that was killed has left
// its own there.
func listenLocal(path string) (*net.UnixListener, error) {
	if len(path) > socketPathMax {
		return nil, fmt.Errorf("socket path of %d characters, the system allows %d: %s; choose a shorter --socket", len(path), socketPathMax, path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // peer credentials decide
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// listenLaunchers opens the socket at which the pod's launcher asks, and, if programs of the
// pod use an MPI, that of process management. A user that may attach may use them.
func (d *daemon) listenLaunchers(cfg *session.Config) (err error) {
	if d.launchers, err = listenLocal(d.o.socket + names.LaunchSuffix); err != nil {
		return fmt.Errorf("the launcher's socket: %w", err)
	}
	if !d.o.noPMI {
		if d.pmiListener, err = listenLocal(d.o.socket + names.PMISuffix); err != nil {
			d.log.Warn("programs of an MPI cannot start here", "cause", err)
		}
	}
	machines := map[string]bool{}
	for _, p := range d.doc.Pods {
		host, _, _ := net.SplitHostPort(p.Address) // the document was checked
		machines[host] = true
	}
	pod := d.doc.Pods[d.o.pod]
	d.pmi = pmi.New(pmi.Config{
		First: pod.FirstRank, Count: pod.Ranks, Layout: d.layout(), Machines: len(machines), Job: "kvs_" + d.doc.Job.ID, Gather: d.tree.Gather,
		Meetings: d.meetings, State: d.start.state, Within: cmp.Or(time.Duration(d.doc.Tuning.StartWithin), d.startWithin()),
		Reach: func(ctx context.Context, pod int) (net.Conn, error) {
			return d.mesh.Open(ctx, link.Peer(pod), execProtocol)
		},
		Allow: func(c net.Conn) error {
			if u, ok := c.(*net.UnixConn); ok {
				return cfg.Allow(u)
			}
			return nil
		},
		Attached: func(rank int) bool { return d.server.Attached(uint32(rank)) },
		Vanished: func(rank int) bool {
			vanished, _ := d.vanished(uint32(rank))
			return vanished
		},
		Ended:     d.well,
		Failed:    d.badly,
		JobFailed: func() bool { return d.fault.Load() != nil },
		Idle: func(rank int) {
			d.engine.Fail(&core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextIdle})
		},
		Over: func(rank int) {
			d.engine.Fail(&core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextOver})
			_ = d.engine.InTurn(func() {}) // it is told before ranks end for it; a stopped engine does not care
		},
		Refused: func(rank int, text string) {
			if d.engine == nil {
				return // it refuses its ranks (refuse)
			}
			d.engine.Fail(&core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextRefused + text})
			_ = d.engine.InTurn(func() {}) // it is told before ranks end for it; a stopped engine does not care
		},
		Abort: func(rank int, code uint32) {
			d.engine.Aborted(uint32(rank), code)
			_ = d.engine.InTurn(func() {}) // as above: the launcher ends the rank then
		},
		Log: d.log,
	})
	return nil
}

// servePMI serves process management, if its socket is open.
func (d *daemon) servePMI() error {
	if d.pmiListener == nil {
		return nil
	}
	return d.pmi.Serve(d.pmiListener)
}

func (d *daemon) closePMI() error {
	err := closed(d.launchers)
	if d.pmiListener != nil {
		err = errors.Join(err, closed(d.pmiListener))
	}
	d.pmi.Close()
	return err
}

// closed closes a listener that may be closed already.
func closed(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// goneTime bounds the wait for the end of a session whose process has ended: a child of it
// may have the socket still.
const goneTime = time.Second

// heard waits until all is heard that a rank has said to process management: its MPI asks for an
// abort there, and may crash at once.
func (d *daemon) heard(rank uint32) {
	if d.pmi != nil {
		d.pmi.Heard(int(rank))
	}
}

// vanished reports whether a rank whose process has ended left without a goodbye: its
// session has ended without one, or does not end, since somebody else has its socket. The
// end of a session is read after that of the process, and judged later still. An error: the
// engine has stopped, and says itself why.
func (d *daemon) vanished(rank uint32) (bool, error) {
	if !d.server.Attached(rank) {
		return false, nil
	}
	var attached, speaks bool
	var f *core.Failure
	look := func() {
		attached, speaks = d.engine.Attached(rank)
		f = d.engine.Failure()
	}
	for end := time.Now().Add(goneTime); ; time.Sleep(time.Millisecond) {
		late := time.Now().After(end)
		if err := d.engine.InTurn(look); err != nil {
			return false, err
		}
		if !attached || late {
			break
		}
	}
	return attached && !speaks || f != nil && f.Rank == rank && strings.HasPrefix(f.Reason, podlife.TextVanished), nil
}

// well ends the job for a rank whose process has ended with code 0 and without a goodbye; else
// the rank attaches no more. A
// process of another number that has attached for it, and lives, is the rank.
func (d *daemon) well(rank int) {
	if d.engine == nil {
		return // it refuses its ranks (refuse)
	}
	f := &core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextVanished}
	lives := false
	look := func() {
		pid := d.engine.PID(f.Rank)
		lives = pid > 0 && unix.Kill(pid, 0) == nil
	}
	if d.engine.InTurn(look) != nil || lives {
		return
	}
	switch vanished, err := d.vanished(f.Rank); {
	case err != nil:
		return
	case !vanished:
		d.engine.Absent(f.Rank)
		return
	}
	d.engine.Fail(f)
	_ = d.engine.InTurn(func() {}) // it is told; a stopped engine does not care
}

// badly ends the job for a rank whose process has ended badly, if its end has not.
func (d *daemon) badly(rank int, code uint32) {
	if d.engine == nil {
		return // as above
	}
	f := &core.Failure{Rank: uint32(rank), Code: code, Reason: podlife.TextBadly}
	if vanished, err := d.vanished(f.Rank); err != nil {
		return
	} else if vanished {
		f.Reason = podlife.TextVanished
	}
	d.engine.Fail(f)
	_ = d.engine.InTurn(func() {}) // it is told; a stopped engine does not care
}
