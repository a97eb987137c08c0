package pmi

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// A script may end well in one rank without MPI, and call it in others, which then wait
// for that rank in MPI_Init for ever. So its launcher asks, again and again, whether some do,
// until all ranks have ended so:
//
//	cmd=outrigger_idle rank=R met=M     M: a rank of the pod that waits by PMIx; -1: none
//	cmd=idle rc=0 known=K waits=W       K: 1 when it is known; W: a rank that waits; -1: none
//
// The others may be in other pods, whose first round of the launch waits for this one's
// piece: the pod brings the idle rank to it instead.

// pieceIdle is followed by the rank's number.
const pieceIdle = 'i'

// idle is what a pod knows of its ranks that ended without MPI. Guarded by the server's mu.
type idle struct {
	ranks  map[int]bool
	passed bool // the round that the first of them was brought to
	waits  int  // a rank of another pod that was in it; -1: none
	missed bool // others of this pod wait, and the job ends for that
}

// idleError is of a round that ranks wait in for one that never comes.
type idleError struct{ rank, pod int }

func (e *idleError) Error() string {
	return fmt.Sprintf("rank %d (pod %d) has ended without having called MPI_Init", e.rank, e.pod)
}

// idleGrace is how long those who wait are left waiting when that is known, so that the
// job ends by the name of the rank that has not come, and not by theirs.
const idleGrace = 3 * time.Second

// idled answers the launcher of a rank that has ended well without MPI.
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
		s.wg.Go(func() { s.bring(rank) })
	}
	s.idle.ranks[rank] = true
	waits := s.beside(rank, met)
	if waits >= 0 {
		s.miss(rank)
	} else {
		waits = s.idle.waits
	}
	known := waits >= 0 || s.idle.passed && len(s.idle.ranks) == s.cfg.Count
	s.mu.Unlock()
	return c.say("cmd=idle rc=0 known=%d waits=%d", number(known), waits)
}

// Idle reports whether a rank has ended without MPI.
func (s *Server) Idle(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle.ranks[rank]
}

// Meeting returns how long a rank has been where all ranks meet; 0: it is not there. Of a
// fence the launcher tells when all ranks of the pod are in it, and of MPI_Finalize the rank
// itself.
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

// beside returns a rank of this pod that is in MPI; -1: none. s.mu is held.
func (s *Server) beside(rank, met int) int {
	for other := s.cfg.First; other < s.cfg.First+s.cfg.Count; other++ {
		if other != rank && (s.init[other] || other == met) {
			return other
		}
	}
	return -1
}

// bring is the round of a pod with an idle rank. Where it fails, nobody waits any more.
func (s *Server) bring(rank int) {
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

// come notes that a rank of this pod is in MPI. s.mu is held.
func (s *Server) come(rank int) {
	s.init[rank] = true
	for idle := range s.idle.ranks {
		if idle != rank {
			s.miss(idle)
			return
		}
	}
}

// miss ends the job in a while for an idle rank of this pod: its launcher does so by itself,
// unless it has gone. s.mu is held.
func (s *Server) miss(rank int) {
	if s.idle.missed {
		return
	}
	s.idle.missed = true
	s.wg.Go(func() { s.end(s.ctx, rank) })
}

// end gives the launcher of an idle rank the time to end the job, and ends it then.
func (s *Server) end(ctx context.Context, rank int) {
	select {
	case <-ctx.Done():
	case <-time.After(idleGrace):
		if s.cfg.Idle != nil {
			s.cfg.Idle(rank)
		}
	}
}

// missing returns who does not come to a round, and ends the job for that; nil: all pods
// are there.
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
			s.end(ctx, rank)
			return &idleError{rank, pod}
		}
		first += s.cfg.Layout[pod]
	}
	return nil
}
