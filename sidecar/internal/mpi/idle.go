package mpi

import (
	"context"
	"fmt"
	"time"
)

// Ranks that end without MPI, where others use it.

// The pauses between two questions.
const (
	idlePause    = 20 * time.Millisecond
	idlePauseMax = time.Second
)

// idleTries is how many questions in a row may fail before the sidecar counts as gone, and
// the job as ended.
const idleTries = 5

// idle is of a rank that has ended well without MPI, and may have used Outrigger by itself.
// All ranks of a script may, but where some call MPI_Init they wait there for all. It is
// known when all have ended, or called it.
func (r *Ranks) idle(ctx context.Context, rank int) error {
	failed := 0
	for pause := idlePause; ; pause = min(2*pause, idlePauseMax) {
		known, waits, err := r.sidecar.idle(ctx, rank, r.pmix.metBeside(rank))
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
