package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Ended reports to the sidecar with a socket for applications that the process of a rank
// has ended with code 0. If the rank still has a session, it has vanished, although a
// process that it started may keep the session's socket open; otherwise it attaches no
// more. Ended waits until that is decided, or ctx ends, and reports whether the rank has
// vanished. Errors are those of the connection, and of a sidecar of an older release, which
// does not know the request.
func Ended(ctx context.Context, socket string, rank int) (vanished bool, err error) {
	return launcher(socket).reportEnded(ctx, rank)
}

func (m management) reportEnded(ctx context.Context, rank int) (vanished bool, err error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // no further request follows
	if err := conn.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return false, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	a, err := ask(conn, fmt.Sprintf("cmd=outrigger_ended rank=%d", rank), 1)
	return a["vanished"] == "1", err
}

// Failed reports to the sidecar with a socket for applications that a rank has ended with a
// code other than 0, or cannot be started. It waits until the sidecar has recorded that,
// before the other ranks are ended because of it: their ends would reach the sidecar at the
// same time, and one of them would count as the cause. If the sidecar is not ready, Failed
// waits for it, within the same bound (reportTimeout); if there is none, the ranks end all
// the same. If the sidecar has ended, Failed does not wait: ranks fail because of that, and
// a sidecar that is started in its place must not take them for the cause.
func Failed(socket string, rank, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	begun := listensAt(socket)
	conn, err := launcher(socket).dial(ctx)
	if errors.Is(err, unix.ECONNREFUSED) {
		return
	}
	if err == nil {
		_ = conn.Close() // no request was sent
	}
	if Await(ctx, socket, reportTimeout, func(string) {}) != nil {
		return
	}
	if begun == (listening{}) || listensAt(socket) == begun { // otherwise the sidecar was being killed
		_ = launcher(socket).reportFailed(ctx, rank, code) // without an answer the ranks end all the same
	}
}

// reportOver reports that the process of a script's rank has ended with code 0 after MPI, and
// whether another rank of the pod is in a program that this one has not run, as far as PMIx
// shows.
func (m management) reportOver(ctx context.Context, rank int, missed bool) error {
	n := 0
	if missed {
		n = 1
	}
	_, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_over rank=%d missed=%d", rank, n))
	return err
}

// JobFailed asks the sidecar with a socket for applications whether the job has failed, as
// far as it knows. Errors are those of the connection, and of a sidecar of an older
// release, which does not know the request.
func JobFailed(ctx context.Context, socket string) (bool, error) {
	a, err := launcher(socket).query(ctx, "cmd=outrigger_state")
	return a["failed"] == "1", err
}

// Aborts calls aborted for the ranks of the pod that are to be ended: ranks that have called
// MPI_Abort, ranks that mpirun has started and that cannot use Outrigger, and lost ones,
// because of which the job has failed although their processes live. It returns when ctx
// ends, or with the error of the connection to the sidecar with a socket for applications.
func Aborts(ctx context.Context, socket string, aborted func(rank, code int, lost bool)) error {
	err := launcher(socket).watchAborts(ctx, aborted)
	if ctx.Err() != nil {
		return err
	}
	// A sidecar of an earlier release reports aborts by process management only.
	return errors.Join(err, management(socket+names.PMISuffix).watchAborts(ctx, aborted))
}
