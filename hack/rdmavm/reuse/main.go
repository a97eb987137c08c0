// reuse sends repeatedly from the same buffers, with other contents each time: small messages
// eagerly, and large ones by rendezvous. The receiver checks every word, which finds a buffer
// that was read too late and a registration of other pages.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

const (
	smallWords = 1000     // 8,000 bytes: eager
	largeWords = 64 << 7  // 64 KiB: rendezvous
	hugeWords  = 20 << 17 // 20 MiB: larger than the part that is registered at once
	stride     = 32 << 10 // words between the starts of two buffers, so that no two are on one page
)

func main() {
	small := flag.Int("small", 8, "buffers of 8,000 bytes, at most 16")
	rounds := flag.Int("rounds", 200, "times that each of them is sent")
	large := flag.Int("large", 0, "buffers of 64 KiB, at most 32")
	huge := flag.Int("huge", 0, "times that a buffer of 20 MiB is sent")
	flag.Parse()
	if err := run(context.Background(), *small, *rounds, *large, *huge); err != nil {
		fmt.Fprintln(os.Stderr, "reuse:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, small, rounds, large, huge int) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	m, err := outrigger.Alloc[uint64](s, max(stride*small, stride*large, hugeWords*min(huge, 1)))
	if err != nil {
		return err
	}
	x := sender{ctx: ctx, w: s.World(), memory: m}
	if err := x.rounds(rounds, small, smallWords); err != nil {
		return err
	}
	if err := x.rounds(2, large, largeWords); err != nil {
		return err
	}
	if err := x.rounds(huge, 1, hugeWords); err != nil {
		return err
	}
	if x.w.Rank() == 1 {
		fmt.Printf("%d messages, every word right\n", x.messages)
	}
	return s.Close()
}

type sender struct {
	ctx      context.Context
	w        *outrigger.Comm
	memory   []uint64
	messages int
}

// rounds sends each of the first n buffers once in each of the given number of rounds. The sends
// of a round are in flight together.
func (x *sender) rounds(rounds, n, words int) error {
	requests := make([]outrigger.Request, n)
	for round := range rounds {
		for i := range requests {
			buffer := x.memory[i*stride:][:words]
			var err error
			if x.w.Rank() == 0 {
				fill(buffer, word(round, i))
				requests[i], err = outrigger.Isend(x.w, buffer, 1, i)
			} else {
				fill(buffer, 0)
				requests[i], err = outrigger.Irecv(x.w, buffer, 0, i)
			}
			if err != nil {
				return err
			}
		}
		if err := outrigger.WaitAll(x.ctx, requests); err != nil {
			return err
		}
		for i := range requests {
			for at, got := range x.memory[i*stride:][:words] {
				if want := word(round, i) + uint64(at); got != want {
					return fmt.Errorf("round %d, buffer %d of %d words: word %d is %#x, want %#x", round, i, words, at, got, want)
				}
			}
			x.messages++
		}
	}
	return nil
}

func word(round, buffer int) uint64 { return uint64(round)<<40 | uint64(buffer)<<24 }

func fill(buffer []uint64, first uint64) {
	for i := range buffer {
		buffer[i] = first + uint64(i)
	}
}
