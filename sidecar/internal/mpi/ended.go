package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Ended tells the sidecar with a socket for applications that the process of a rank has
// ended with code 0: if the rank has a session still, it has vanished, though a process
// that it started may keep the session's socket open; else it attaches no more. It waits until
// that is known, or ctx ends, and reports whether the rank has vanished. Errors are those of the
// connection, and of a sidecar of an older release, which does not know the question.
func Ended(ctx context.Context, socket string, rank int) (vanished bool, err error) {
	return launcher(socket).ended(ctx, rank)
}

func (m management) ended(ctx context.Context, rank int) (vanished bool, err error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // nothing more is asked
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	a, err := ask(conn, fmt.Sprintf("cmd=outrigger_ended rank=%d", rank), 1)
	return a["vanished"] == "1", err
}

// Failed tells the sidecar with a socket for applications that a rank has ended badly, or
// cannot be started, and waits until that is known, before the other ranks are ended for it:
// their ends would come to the sidecar at the same time, and one of them would be to blame. A
// sidecar that is not ready is waited for, for as long (tellPatience); without it the ranks end
// all the same. One that has ended is not: ranks fail because of that, which is not to be told
// to another one that is started in its place.
func Failed(socket string, rank, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
	defer cancel()
	begun := listensAt(socket)
	conn, err := launcher(socket).dial(ctx)
	if errors.Is(err, unix.ECONNREFUSED) {
		return
	}
	if err == nil {
		_ = conn.Close() // nothing was asked
	}
	if Await(ctx, socket, tellPatience, func(string) {}) != nil {
		return
	}
	if begun == (listening{}) || listensAt(socket) == begun { // else it was being killed
		_ = launcher(socket).failed(ctx, rank, code) // as said
	}
}

// over tells that the process of a script's rank has ended well after MPI, and whether another
// rank of the pod is in a program that this one has not run, as far as PMIx tells.
func (m management) over(ctx context.Context, rank int, missed bool) error {
	n := 0
	if missed {
		n = 1
	}
	_, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_over rank=%d missed=%d", rank, n))
	return err
}

// JobFailed asks the sidecar with a socket for applications whether the job has failed, as
// far as it knows. Errors are those of the connection, and of a sidecar of an older release,
// which does not know the question.
func JobFailed(ctx context.Context, socket string) (bool, error) {
	a, err := launcher(socket).query(ctx, "cmd=outrigger_state")
	return a["failed"] == "1", err
}

// Aborts tells of the ranks of the pod that are to be ended: those that have called MPI_Abort,
// those that mpirun has started and that cannot use Outrigger, and lost ones, because of which the
// job has failed although their processes live. It returns when ctx ends, or with the error by
// which the sidecar with a socket for applications is lost.
func Aborts(ctx context.Context, socket string, told func(rank, code int, lost bool)) error {
	err := launcher(socket).aborts(ctx, told)
	if ctx.Err() != nil {
		return err
	}
	// A sidecar of an earlier release tells of aborts by process management alone.
	return errors.Join(err, management(socket+names.PMISuffix).aborts(ctx, told))
}
