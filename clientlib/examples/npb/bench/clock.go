package bench

import (
	"context"
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// Clock times the benchmark's timed part: every rank starts it together, and
// the slowest rank's time counts (NPB reports the maximum).
type Clock struct {
	comm  *outrigger.Comm
	slot  []float64 // arena memory, one element
	start time.Time
}

// NewClock takes one element of the arena.
func NewClock(c *outrigger.Comm, a *Arena) (*Clock, error) {
	slot, err := Buffer[float64](a, 1, "clock")
	if err != nil {
		return nil, err
	}
	return &Clock{comm: c, slot: slot}, nil
}

// Start is collective: it returns on every rank after all ranks called it.
func (k *Clock) Start(ctx context.Context) error {
	if err := k.comm.Barrier(ctx); err != nil {
		return fmt.Errorf("starting together: %w", err)
	}
	k.start = time.Now()
	return nil
}

// Stop is collective and returns the slowest rank's seconds on every rank.
func (k *Clock) Stop(ctx context.Context) (float64, error) {
	k.slot[0] = time.Since(k.start).Seconds()
	if err := outrigger.Allreduce(ctx, k.comm, k.slot, k.slot, outrigger.Max); err != nil {
		return 0, fmt.Errorf("slowest rank's time: %w", err)
	}
	return k.slot[0], nil
}
