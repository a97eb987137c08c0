package pmi

import (
	"fmt"
	"strconv"
)

// A script may run fewer MPI programs in one rank than in others, which then wait for that
// rank in MPI_Init for ever. So the launcher of a script reports each rank whose process
// has ended with exit code 0 after MPI:
//
//	cmd=outrigger_over rank=R missed=M     M: 1 if another rank of the pod is in a program
//	cmd=over rc=0                          that R has not run, by PMIx
//
// The job fails because of R when another rank begins a program that R has not run. Ranks
// of other pods meet in a round of the launch, to which the pod contributes the first of
// its ranks that are over.

// pieceOver is followed by the rank's number.
const pieceOver = 'e'

// overError reports a round in which ranks wait for one that has ended.
type overError struct{ rank, pod int }

func (e *overError) Error() string {
	return fmt.Sprintf("rank %d (pod %d) has ended, and has not run this MPI program", e.rank, e.pod)
}

// ranksOver is the set of the ranks of a pod that have ended. Guarded by Server.mu.
type ranksOver map[int]bool

// overOf serves the report of a rank that has ended after MPI.
func (s *Server) overOf(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	s.mu.Lock()
	first := len(s.gone) == 0
	s.gone[rank] = true
	missed := r.fields["missed"] == "1" || s.programs.after(rank)
	s.mu.Unlock()
	if missed {
		s.missOver(rank)
	}
	if first {
		s.wg.Go(func() { s.contributeOver(rank) })
	}
	return c.send("cmd=over rc=0")
}

// after reports whether a rank is in a program that the given rank has not run.
func (x *programs) after(rank int) bool {
	run := 0
	if p := x.ranks[rank]; p != nil {
		run = p.number
	}
	for _, p := range x.ranks {
		if p.running && p.number > run {
			return true
		}
	}
	return false
}

// missOver ends the job for a rank that has ended, and the ranks of this pod that have not:
// an MPI may wait on in spite of the error. The launchers kill them like ranks that abort.
// Preconditions: s.mu is not held.
func (s *Server) missOver(rank int) {
	if s.cfg.Over != nil {
		s.cfg.Over(rank)
	}
	s.wg.Go(func() {
		for other := s.cfg.First; other < s.cfg.First+s.cfg.Count; other++ {
			s.mu.Lock()
			gone := s.gone[other]
			s.mu.Unlock()
			if !gone {
				s.notifyAbort(other, 1)
			}
		}
	})
}

// missed ends the job for ranks that have ended if another rank begins a program that they
// have not run. s.mu is held.
func (s *Server) missed(number int) {
	for rank := range s.gone {
		if p := s.programs.ranks[rank]; p != nil && p.number < number {
			s.wg.Go(func() { s.missOver(rank) })
			return
		}
	}
}

// contributeOver does the round of a pod with a rank that has ended. If the round fails, no
// rank waits any more.
func (s *Server) contributeOver(rank int) {
	all, err := s.cfg.Gather(s.ctx, strconv.AppendInt([]byte{pieceOver}, int64(rank), 10))
	for pod := 0; pod < len(all) && err == nil; pod++ {
		if waits(all[pod]) && s.cfg.Layout[pod] > 0 {
			s.missOver(rank)
			return
		}
	}
}

// waits reports whether a pod's piece is that of ranks which wait in the round.
func waits(piece []byte) bool {
	return len(piece) > 0 && piece[0] != pieceIdle && piece[0] != pieceOver
}
