package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which all ranks of a machine share. Go's own
// monotonic time is the same clock from another zero, and reads it without a
// system call, which a rank that waits for an instant must not make; so the
// zero is found once.
type clock struct {
	base   time.Time
	origin int64 // of base, in nanoseconds of CLOCK_MONOTONIC
}

// newClock finds the zero between two readings that are as close as they get.
func newClock() (clock, error) {
	var c clock
	closest := time.Duration(1 << 62)
	for range 100 {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return clock{}, fmt.Errorf("reading CLOCK_MONOTONIC: %w", err)
		}
		if gap := time.Since(before); gap < closest {
			closest = gap
			c = clock{before, ts.Nano() - int64(gap/2)}
		}
	}
	return c, nil
}

// now is in nanoseconds.
func (c *clock) now() int64 { return c.origin + int64(time.Since(c.base)) }
