package mpi

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Times of a drain.
const (
	drainInterval = 100 * time.Millisecond // delay between searches for ranks
	drainGrace    = 2 * time.Second        // time for a pod to start a rank, and for daemons to end after their ranks
)

// drain handles SIGTERM: the ranks of this pod receive it, as from mpirun, and go on
// exchanging messages, so that they can agree on a checkpoint and write it, until they end
// or the launcher kills them. mpirun itself does not receive it: Open MPI's kills its ranks
// a second later, and a script that runs mpirun ends before its mpirun. If the job has
// failed, a checkpoint is useless: stop ends mpirun and its daemons.
func (s *Starter) drain(ctx context.Context, stop func()) {
	if failed, err := JobFailed(ctx, s.socket); failed && err == nil {
		stop()
		return
	}
	signalled, begun := map[int]bool{}, time.Now()
	for ctx.Err() == nil {
		ranks := rankProcesses("/proc", s.socket)
		for _, pid := range ranks {
			if !signalled[pid] {
				signalled[pid] = true
				_ = unix.Kill(pid, unix.SIGTERM) // it may just have ended
			}
		}
		switch {
		case len(ranks) > 0:
		case len(signalled) > 0:
			s.leave(ctx, stop)
			return
		case time.Since(begun) > drainGrace:
			stop()
			return
		}
		select {
		case <-time.After(drainInterval):
		case <-ctx.Done():
		}
	}
}

// leave ends the part of a pod whose ranks have ended. In the pod of mpirun it waits for
// mpirun's own end; in the other pods the daemons have a moment to notice it.
func (s *Starter) leave(ctx context.Context, stop func()) {
	if s.job.pod == 0 {
		return
	}
	select {
	case <-time.After(drainGrace):
		stop()
	case <-ctx.Done():
	}
}

// rankVariables are the variables by which an MPI tells a process its rank; every MPI sets
// one of them.
var rankVariables = []string{"PMIX_RANK=", "PMI_RANK=", "OMPI_COMM_WORLD_RANK="}

// rankProcesses returns the processes that an mpirun has started as ranks of the sidecar
// with a socket, and the processes that these have started, by their environment. The
// environment of other users' processes cannot be read.
func rankProcesses(proc, socket string) (pids []int) {
	all, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "environ"))
	if err != nil {
		return nil // the pattern is valid
	}
	own := []byte(names.EnvSocket + "=" + socket)
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended, or belongs to another user
		}
		variables := bytes.Split(text, []byte{0})
		here := slices.ContainsFunc(variables, func(v []byte) bool { return bytes.Equal(v, own) })
		rank := slices.ContainsFunc(variables, func(v []byte) bool {
			return slices.ContainsFunc(rankVariables, func(name string) bool { return bytes.HasPrefix(v, []byte(name)) })
		})
		if here && rank {
			pids = append(pids, pid)
		}
	}
	return pids
}
