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

// idle is of a rank that has ended well without MPI. All ranks of a script may, but where
// some call MPI_Init they wait there for all.
func (r *Ranks) idle(ctx context.Context, rank int) error {
	for pause := idlePause; ; pause = min(2*pause, idlePauseMax) {
		known, waits, err := r.sidecar.idle(ctx, rank, r.pmix.metBeside(rank))
		switch {
		case err != nil:
			return nil // the sidecar has ended, and so the job
		case known && waits >= 0:
			return fmt.Errorf("%w: it never called MPI_Init, where rank %d waits for it; all ranks of a job with --mpi call it, or none", ErrUnused, waits)
		case known:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
