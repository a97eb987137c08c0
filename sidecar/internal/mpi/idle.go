package mpi

import (
	"context"
	"fmt"
	"time"
)

// This file is about ranks that end without MPI while others use it.

// Bounds of the pause between two requests, which doubles.
const (
	idlePause    = 20 * time.Millisecond
	idlePauseMax = time.Second
)

// idleTries is how many requests in a row may fail before the sidecar counts as gone, and
// the job as ended.
const idleTries = 5

// judgeIdle judges a rank that has ended with code 0 without MPI, and may have used Outrigger
// directly. All ranks of a script may end so; but if some call MPI_Init, they wait there
// for all ranks. The answer is final when all ranks have ended, or called MPI_Init.
func (r *Ranks) judgeIdle(ctx context.Context, rank int) error {
	failed := 0
	for pause := idlePause; ; pause = min(2*pause, idlePauseMax) {
		known, waits, err := r.sidecar.waitsFor(ctx, rank, r.pmix.otherConnected(rank))
		switch {
		case err != nil:
			failed++
			known = failed == idleTries
		case known && waits >= 0:
			return fmt.Errorf("it never called MPI_Init, where rank %d waits for it; all ranks of a job with --mpi call it, or none", waits)
		default:
			failed = 0
		}
		if known {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
