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
	drainLook = 100 * time.Millisecond // between looks at which ranks there are
	drainNone = 2 * time.Second        // a pod without a rank for so long is not waited for; nor is one that does not come to the end
)

// drain is what SIGTERM does: the ranks of this pod get it, as mpirun would send it to them,
// and go on exchanging messages, so that they can agree on a checkpoint and write it, until
// they end or the launcher kills them. Not by mpirun itself: Open MPI's kills its ranks a
// second later, and a script that runs mpirun ends before it. Where the job has failed there
// is nothing to write: mpirun and its daemons are ended by stop.
func (s *Starter) drain(ctx context.Context, stop func()) {
	if failed, err := JobFailed(ctx, s.socket); failed && err == nil {
		stop()
		return
	}
	told, begun := map[int]bool{}, time.Now()
	for ctx.Err() == nil {
		ranks := rankProcesses("/proc", s.socket)
		for _, pid := range ranks {
			if !told[pid] {
				told[pid] = true
				_ = unix.Kill(pid, unix.SIGTERM) // it may just have ended
			}
		}
		switch {
		case len(ranks) > 0:
		case len(told) > 0:
			s.leave(ctx, stop)
			return
		case time.Since(begun) > drainNone:
			stop()
			return
		}
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
		}
	}
}

// leave ends the part of a pod whose ranks have ended. Where mpirun runs, its own end is
// waited for; in the others its daemons have a moment to see that.
func (s *Starter) leave(ctx context.Context, stop func()) {
	if s.job.pod == 0 {
		return
	}
	select {
	case <-time.After(drainNone):
		stop()
	case <-ctx.Done():
	}
}

// rankVariables are those by which every MPI says to a process which rank it is; one of them.
var rankVariables = []string{"PMIX_RANK=", "PMI_RANK=", "OMPI_COMM_WORLD_RANK="}

// rankProcesses are the processes that an mpirun has started as ranks of the sidecar with a
// socket, and what these have started, by their environment. Those of other users are not
// seen.
func rankProcesses(proc, socket string) (pids []int) {
	all, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "environ"))
	if err != nil {
		return nil // the pattern is well formed
	}
	own := []byte(names.EnvSocket + "=" + socket)
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended, or is another user's
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
