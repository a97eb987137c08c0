// pingpong measures through Outrigger what perftest measures: the one-way time of a small message
// (ib_write_lat), and the rate of a window of large messages (ib_write_bw). Both ranks check the
// received data.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	small := flag.Int("small", 1000, "round trips of 8 bytes")
	large := flag.Int("large", 60, "windows of 256 KiB messages")
	enough := flag.String("soak", "", "instead, send checked blocks there and back until this file exists")
	flag.Parse()
	if err := run(context.Background(), *small, *large, *enough); err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, small, large int, enough string) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	w := s.World()
	if w.Size() != 2 {
		return fmt.Errorf("%d ranks, want 2", w.Size())
	}
	if enough != "" {
		if err := soak(ctx, s, w, enough); err != nil {
			return err
		}
		return s.Close()
	}
	if err := latency(ctx, s, w, small); err != nil {
		return err
	}
	if err := bandwidth(ctx, s, w, large); err != nil {
		return err
	}
	return s.Close()
}

// latency prints the median of half round trips.
func latency(ctx context.Context, s *outrigger.Session, w *outrigger.Comm, rounds int) error {
	buf, err := outrigger.Alloc[uint64](s, 1)
	if err != nil {
		return err
	}
	const warm = 50
	var times []time.Duration
	for i := range rounds + warm {
		begun := time.Now()
		if w.Rank() == 0 {
			buf[0] = uint64(i)
			if err := outrigger.Send(ctx, w, buf, 1, 1); err != nil {
				return err
			}
		}
		if _, err := outrigger.Recv(ctx, w, buf, 1-w.Rank(), 1); err != nil {
			return err
		}
		if buf[0] != uint64(i) {
			return fmt.Errorf("round %d brought %d", i, buf[0])
		}
		if w.Rank() == 1 {
			if err := outrigger.Send(ctx, w, buf, 0, 1); err != nil {
				return err
			}
		} else if i >= warm {
			times = append(times, time.Since(begun)/2)
		}
	}
	if w.Rank() == 0 {
		slices.Sort(times)
		fmt.Printf("pingpong 8 bytes: %.2f us one way (median of %d)\n", float64(times[len(times)/2].Nanoseconds())/1e3, len(times))
	}
	return nil
}

const (
	window  = 64 // as of OSU's osu_bw; ib_write_bw has up to 128 writes under way
	message = 256 << 10
)

// bandwidth prints the rate of windows of messages, each answered once. The first window
// is not timed: memory is registered in it, which ib_write_bw has done before it begins.
func bandwidth(ctx context.Context, s *outrigger.Session, w *outrigger.Comm, windows int) error {
	all, err := outrigger.Alloc[byte](s, window*message)
	if err != nil {
		return err
	}
	answer, err := outrigger.Alloc[uint64](s, 1)
	if err != nil {
		return err
	}
	for i := range all {
		if w.Rank() == 0 {
			all[i] = byte(i * 31)
		}
	}
	if err := w.Barrier(ctx); err != nil {
		return err
	}
	var begun time.Time
	for i := range 1 + windows {
		if i == 1 {
			begun = time.Now()
		}
		if err := pass(ctx, w, all, answer); err != nil {
			return err
		}
	}
	if took := time.Since(begun); w.Rank() == 0 {
		fmt.Printf("pingpong 256 KiB: %.2f MB/s (%d messages)\n", float64(windows*window*message)/1e6/took.Seconds(), windows*window)
	}
	for i := range all {
		if all[i] != byte(i*31) {
			return fmt.Errorf("byte %d is %d, want %d", i, all[i], byte(i*31))
		}
	}
	return nil
}

// pass sends a window of messages from rank 0 to rank 1, which answers.
func pass(ctx context.Context, w *outrigger.Comm, all []byte, answer []uint64) error {
	requests := make([]outrigger.Request, window)
	for i := range requests {
		part := all[i*message : (i+1)*message]
		var err error
		if w.Rank() == 0 {
			requests[i], err = outrigger.Isend(w, part, 1, 2)
		} else {
			requests[i], err = outrigger.Irecv(w, part, 0, 2)
		}
		if err != nil {
			return err
		}
	}
	if err := outrigger.WaitAll(ctx, requests); err != nil {
		return err
	}
	if w.Rank() == 1 {
		return outrigger.Send(ctx, w, answer, 0, 3)
	}
	_, err := outrigger.Recv(ctx, w, answer, 1, 3)
	return err
}
