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

// ALPN names of the connections between sidecars for process management.
const (
	launchProtocol = "outrigger-launch/1" // data that ranks exchange while they start
	meetProtocol   = "outrigger-meet/1"   // exchanges between some of the pods
	execProtocol   = "outrigger-exec/1"   // commands that the program's mpirun starts in other pods
)

// startTree creates this pod's part of the exchange between all pods. The mesh does not
// exist yet; it does when the tree dials.
func (d *daemon) startTree() {
	d.tree = pmi.NewTree(d.o.pod, len(d.doc.Pods), d.doc.Ranks, func(ctx context.Context, pod int) (net.Conn, error) {
		return d.mesh.Open(ctx, link.Peer(pod), launchProtocol)
	})
}

// layout returns the number of ranks of each pod.
func (d *daemon) layout() []int {
	layout := make([]int, len(d.doc.Pods))
	for i, p := range d.doc.Pods {
		layout[i] = p.Ranks
	}
	return layout
}

// makeMeetings creates this pod's part of the exchanges between some pods.
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

// serveExec runs a command of another pod in this one.
func (d *daemon) serveExec(ctx context.Context, _ link.Peer, conn net.Conn) error {
	return d.pmi.ServeExec(ctx, conn)
}

// protocols returns the handlers of connections between sidecars that carry no messages of
// ranks.
func (d *daemon) protocols() map[string]peers.Handler {
	if d.o.noPMI {
		return nil
	}
	return map[string]peers.Handler{launchProtocol: d.serveTree, meetProtocol: d.serveMeeting, execProtocol: d.serveExec}
}

// socketPathMax is the longest path of a Unix socket: sun_path without its final 0 (unix(7)).
const socketPathMax = 107

// listenLocal opens a socket for programs of this pod. It removes the socket that a killed
// sidecar has left.
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

// listenLaunchers opens the socket for the pod's launcher, and, if programs of the pod use an
// MPI, that of process management. The users that may attach may use both.
func (d *daemon) listenLaunchers(cfg *session.Config) (err error) {
	if d.launchers, err = listenLocal(d.o.socket + names.LaunchSuffix); err != nil {
		return fmt.Errorf("the launcher's socket: %w", err)
	}
	if !d.o.noPMI {
		if d.pmiListener, err = listenLocal(d.o.socket + names.PMISuffix); err != nil {
			d.log.Warn("MPI programs cannot start in this pod", "cause", err)
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
		Ended:     d.rankEnded,
		Failed:    d.rankFailed,
		JobFailed: func() bool { return d.failure.Load() != nil },
		Idle: func(rank int) {
			d.engine.Fail(&core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextIdle})
		},
		Over: func(rank int) {
			d.failAndWait(&core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextOver})
		},
		Refused: func(rank int, text string) {
			if d.engine == nil {
				return // this sidecar refuses its ranks
			}
			d.failAndWait(&core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextRefused + text})
		},
		Abort: func(rank int, code uint32) {
			d.engine.Aborted(uint32(rank), code)
			_ = d.engine.InTurn(func() {}) // as failAndWait: the launcher ends the rank then
		},
		Log: d.log,
	})
	return nil
}

// failAndWait fails the job and returns when the engine has recorded that, so that the
// failure is known before ranks end because of it. A stopped engine needs no failure.
func (d *daemon) failAndWait(f *core.Failure) {
	d.engine.Fail(f)
	_ = d.engine.InTurn(func() {})
}

// servePMI serves process management, if its socket is open.
func (d *daemon) servePMI() error {
	if d.pmiListener == nil {
		return nil
	}
	return d.pmi.Serve(d.pmiListener)
}

func (d *daemon) closePMI() error {
	err := closeListener(d.launchers)
	if d.pmiListener != nil {
		err = errors.Join(err, closeListener(d.pmiListener))
	}
	d.pmi.Close()
	return err
}

// closeListener closes a listener that may be closed already.
func closeListener(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// sessionEndTime bounds the wait for the end of a session whose process has ended: a child
// of the process may still have the socket open.
const sessionEndTime = time.Second

// awaitReports waits until process management has read all messages of a rank: its MPI
// requests an abort there, and may crash immediately after.
func (d *daemon) awaitReports(rank uint32) {
	if d.pmi != nil {
		d.pmi.Heard(int(rank))
	}
}

// vanished reports whether a rank whose process has ended left without a Goodbye: its
// session has ended without one, or does not end because another process has its socket. It
// waits, since the end of the session is read after that of the process, and the failure is
// recorded later still. An error means that the engine has stopped, which it reports itself.
func (d *daemon) vanished(rank uint32) (bool, error) {
	if !d.server.Attached(rank) {
		return false, nil
	}
	var attached, speaks bool
	var f *core.Failure
	read := func() {
		attached, speaks = d.engine.Attached(rank)
		f = d.engine.Failure()
	}
	for end := time.Now().Add(sessionEndTime); ; time.Sleep(time.Millisecond) {
		late := time.Now().After(end)
		if err := d.engine.InTurn(read); err != nil {
			return false, err
		}
		if !attached || late {
			break
		}
	}
	return attached && !speaks || f != nil && f.Rank == rank && strings.HasPrefix(f.Reason, podlife.TextVanished), nil
}

// rankEnded handles the end of a rank's process with exit code 0. If the rank left without a
// Goodbye, the job fails; else the rank will not attach again. If another process has
// attached as the rank and is alive, that process is the rank, and nothing happens.
func (d *daemon) rankEnded(rank int) {
	if d.engine == nil {
		return // this sidecar refuses its ranks
	}
	f := &core.Failure{Rank: uint32(rank), Code: 1, Reason: podlife.TextVanished}
	alive := false
	read := func() {
		pid := d.engine.PID(f.Rank)
		alive = pid > 0 && unix.Kill(pid, 0) == nil
	}
	if d.engine.InTurn(read) != nil || alive {
		return
	}
	switch vanished, err := d.vanished(f.Rank); {
	case err != nil:
		return
	case !vanished:
		d.engine.Absent(f.Rank)
		return
	}
	d.failAndWait(f)
}

// rankFailed fails the job for a rank whose process has ended with another exit code than 0
// or by a signal, unless the job has failed already.
func (d *daemon) rankFailed(rank int, code uint32) {
	if d.engine == nil {
		return // this sidecar refuses its ranks
	}
	f := &core.Failure{Rank: uint32(rank), Code: code, Reason: podlife.TextBadly}
	if vanished, err := d.vanished(f.Rank); err != nil {
		return
	} else if vanished {
		f.Reason = podlife.TextVanished
	}
	d.failAndWait(f)
}
