package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which all ranks of a machine share. A rank that waits for
// an instant must read it without a system call. Go's monotonic time does, and is the same
// clock with another zero, so newClock measures the offset between the two once.
type clock struct {
	base   time.Time
	origin int64 // CLOCK_MONOTONIC at base, in nanoseconds
}

// newClock reads CLOCK_MONOTONIC between two readings of Go's clock, and uses the try in
// which those two were the closest.
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

// now returns CLOCK_MONOTONIC in nanoseconds.
func (c *clock) now() int64 { return c.origin + int64(time.Since(c.base)) }
