package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// exitCheckpoint is the exit code of a rank that has stopped at a checkpoint, before its
// last round.
const exitCheckpoint = 85

// checkpoint is the file into which a job that gets SIGTERM writes the number of its next
// round, so that it continues with that round when it is started again. The ranks agree on
// the round in which they stop, because the signal reaches them at different times. nil: the
// job writes no checkpoints.
type checkpoint struct {
	file string
	term chan os.Signal
}

func newCheckpoint(file string) *checkpoint {
	if file == "" {
		return nil
	}
	c := &checkpoint{file: file, term: make(chan os.Signal, 1)}
	signal.Notify(c.term, syscall.SIGTERM)
	return c
}

// begin returns the first round, which rank 0 reads from the file. It is collective.
func (c *checkpoint) begin(ctx context.Context, world *outrigger.Comm) (int, error) {
	if c == nil {
		return 0, nil
	}
	own, all := []int64{0}, []int64{0}
	if world.Rank() == 0 {
		text, err := os.ReadFile(c.file)
		switch {
		case err == nil:
			if own[0], err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32); err != nil {
				return 0, fmt.Errorf("checkpoint %s: %w", c.file, err)
			}
			fmt.Printf("goes on with round %d\n", own[0])
		case !errors.Is(err, fs.ErrNotExist):
			return 0, fmt.Errorf("checkpoint: %w", err)
		}
	}
	err := outrigger.Allreduce(ctx, world, own, all, outrigger.Max)
	return int(all[0]), err
}

// stops reports whether the job stops before the given round, after it has written the
// checkpoint. It is collective.
func (c *checkpoint) stops(ctx context.Context, world *outrigger.Comm, round int) (bool, error) {
	if c == nil {
		return false, nil
	}
	own, all := []int64{0}, []int64{0}
	select {
	case <-c.term:
		own[0] = 1
	default:
	}
	if err := outrigger.Allreduce(ctx, world, own, all, outrigger.Max); err != nil || all[0] == 0 {
		return false, err
	}
	if world.Rank() == 0 {
		// The rename is atomic: the job may be killed at any time.
		part := c.file + ".part"
		if err := errors.Join(os.WriteFile(part, []byte(strconv.Itoa(round)), 0o600), os.Rename(part, c.file)); err != nil {
			return false, fmt.Errorf("checkpoint: %w", err)
		}
		fmt.Printf("checkpoint written before round %d\n", round)
	}
	return true, world.Barrier(ctx)
}
