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

// exitCheckpoint is the exit code of a rank that has stopped at a checkpoint: its work is
// not done.
const exitCheckpoint = 85

// checkpoint is the file in which a job that is told to end by SIGTERM leaves the number of
// its next round, and by which it begins there when it is started again. All ranks agree by
// messages about the round in which they stop, since they are told at different times. nil:
// there is none.
type checkpoint struct {
	file string
	told chan os.Signal
}

func newCheckpoint(file string) *checkpoint {
	if file == "" {
		return nil
	}
	c := &checkpoint{file: file, told: make(chan os.Signal, 1)}
	signal.Notify(c.told, syscall.SIGTERM)
	return c
}

// begin is the first round, which rank 0 reads.
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

// stops reports whether the job is to end before a round, and has written that it was.
func (c *checkpoint) stops(ctx context.Context, world *outrigger.Comm, round int) (bool, error) {
	if c == nil {
		return false, nil
	}
	own, all := []int64{0}, []int64{0}
	select {
	case <-c.told:
		own[0] = 1
	default:
	}
	if err := outrigger.Allreduce(ctx, world, own, all, outrigger.Max); err != nil || all[0] == 0 {
		return false, err
	}
	if world.Rank() == 0 {
		// Whole, or not at all: the job may be killed meanwhile.
		part := c.file + ".part"
		if err := errors.Join(os.WriteFile(part, []byte(strconv.Itoa(round)), 0o600), os.Rename(part, c.file)); err != nil {
			return false, fmt.Errorf("checkpoint: %w", err)
		}
		fmt.Printf("checkpoint written before round %d\n", round)
	}
	return true, world.Barrier(ctx)
}
