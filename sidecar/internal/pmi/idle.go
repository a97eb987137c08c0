package pmi

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// A script may end with exit code 0 in one rank without calling MPI, and call MPI in other
// ranks, which then wait for that rank in MPI_Init for ever. So the launcher of such a rank
// asks again and again whether other ranks wait, until all ranks have ended that way:
//
//	cmd=outrigger_idle rank=R met=M     M: a rank of the pod that waits by PMIx; -1: none
//	cmd=idle rc=0 known=K waits=W       K: 1 if the answer is final; W: a rank that waits; -1: none
//
// The waiting ranks may belong to other pods, whose first round of the launch waits for the
// piece of this pod: the pod contributes the idle rank to it instead.

// pieceIdle is followed by the rank's number.
const pieceIdle = 'i'

// idle is what the server knows about ranks of its pod that ended without MPI. Guarded by
// Server.mu.
type idle struct {
	ranks  map[int]bool
	passed bool // the round to which the pod contributed its first idle rank has ended
	waits  int  // the first rank of another pod whose ranks waited in that round; -1: none
	missed bool // other ranks of this pod wait, and the job ends because of that
}

// idleError reports a round in which ranks wait for one that never calls MPI_Init.
type idleError struct{ rank, pod int }

func (e *idleError) Error() string {
	return fmt.Sprintf("rank %d (pod %d) has ended without having called MPI_Init", e.rank, e.pod)
}

// idleGrace is the delay between the discovery that ranks wait for an idle rank and the
// error of their round, so that the failure names the idle rank and not the waiting ones.
const idleGrace = 3 * time.Second

// idled serves the launcher of a rank that has ended with exit code 0 without MPI.
func (s *Server) idled(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	met := -1
	if r.fields["met"] != "-1" {
		if met, err = s.rankOf(r.fields["met"]); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if len(s.idle.ranks) == 0 {
		s.wg.Go(func() { s.contributeIdle(rank) })
	}
	s.idle.ranks[rank] = true
	waits := s.otherInMPI(rank, met)
	if waits >= 0 {
		s.miss(rank)
	} else {
		waits = s.idle.waits
	}
	known := waits >= 0 || s.idle.passed && len(s.idle.ranks) == s.cfg.Count
	s.mu.Unlock()
	return c.send("cmd=idle rc=0 known=%d waits=%d", number(known), waits)
}

// Idle reports whether a rank has ended without MPI.
func (s *Server) Idle(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle.ranks[rank]
}

// Meeting returns how long a rank has waited where all ranks meet, or 0 if it does not wait
// there. For a fence, the launcher reports when all ranks of the pod are in it; for
// MPI_Finalize, the rank itself reports.
func (s *Server) Meeting(rank int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting {
		if c.rank == rank {
			return time.Since(c.entered)
		}
	}
	if since, in := s.finalize[rank]; in {
		return max(time.Since(since), time.Nanosecond)
	}
	if s.fences > 0 {
		return time.Since(s.fencing)
	}
	return 0
}

// otherInMPI returns another rank of this pod that is in MPI, or -1. s.mu is held.
func (s *Server) otherInMPI(rank, met int) int {
	for other := s.cfg.First; other < s.cfg.First+s.cfg.Count; other++ {
		if other != rank && (s.init[other] || other == met) {
			return other
		}
	}
	return -1
}

// contributeIdle does the round of a pod with an idle rank. If the round fails, no rank
// waits any more.
func (s *Server) contributeIdle(rank int) {
	all, err := s.cfg.Gather(s.ctx, strconv.AppendInt([]byte{pieceIdle}, int64(rank), 10))
	waiting, first := -1, 0
	for pod := 0; pod < len(all) && err == nil && waiting < 0; pod++ {
		if waits(all[pod]) && s.cfg.Layout[pod] > 0 {
			waiting = first
		}
		first += s.cfg.Layout[pod]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.passed, s.idle.waits = true, waiting
}

// enterMPI notes that a rank of this pod is in MPI. s.mu is held.
func (s *Server) enterMPI(rank int) {
	s.init[rank] = true
	for idle := range s.idle.ranks {
		if idle != rank {
			s.miss(idle)
			return
		}
	}
}

// miss ends the job after a delay for an idle rank of this pod. The launcher of the rank
// ends it earlier, unless the launcher has gone. s.mu is held.
func (s *Server) miss(rank int) {
	if s.idle.missed {
		return
	}
	s.idle.missed = true
	s.wg.Go(func() { s.endIdle(s.ctx, rank) })
}

// endIdle gives the launcher of an idle rank idleGrace to end the job, and then ends it.
func (s *Server) endIdle(ctx context.Context, rank int) {
	select {
	case <-ctx.Done():
	case <-time.After(idleGrace):
		if s.cfg.Idle != nil {
			s.cfg.Idle(rank)
		}
	}
}

// missing returns an error that names a rank that does not come to a round, and ends the
// job for that, or nil if all pods take part.
func (s *Server) missing(ctx context.Context, all [][]byte) error {
	first := 0
	for pod, piece := range all {
		if len(piece) > 0 && !waits(piece) {
			rank, err := strconv.Atoi(string(piece[1:]))
			if err != nil || rank < first || rank >= first+s.cfg.Layout[pod] {
				return fmt.Errorf("pod %d names a rank that it does not have", pod)
			}
			if piece[0] == pieceOver {
				s.missOver(rank)
				return &overError{rank, pod}
			}
			s.endIdle(ctx, rank)
			return &idleError{rank, pod}
		}
		first += s.cfg.Layout[pod]
	}
	return nil
}
