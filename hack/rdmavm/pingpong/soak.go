package main

import (
	"context"
	"fmt"
	"os"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// sizes are the sizes of the blocks of a soak, in words. The blocks are sent by the eager ring, in
// one message, in several messages, and by rendezvous.
var sizes = []int{2, 200, 1000, 30000}

// soak sends blocks in both directions and checks every word, until rank 0 finds that the file
// enough exists.
func soak(ctx context.Context, s *outrigger.Session, w *outrigger.Comm, enough string) error {
	block, err := outrigger.Alloc[uint64](s, sizes[len(sizes)-1])
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		b := block[:sizes[round%len(sizes)]]
		if w.Rank() == 0 {
			fill(b, round)
			if _, err := os.Stat(enough); err == nil && round >= len(sizes) {
				b[0] = 1
			}
			if err := outrigger.Send(ctx, w, b, 1, 4); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			clear(b[1:])
		}
		if _, err := outrigger.Recv(ctx, w, b, 1-w.Rank(), 4); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := check(b, round); err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := outrigger.Send(ctx, w, b, 0, 4); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if b[0] == 1 {
			if w.Rank() == 0 {
				fmt.Printf("soak: %d rounds there and back, every word right\n", round+1)
			}
			return nil
		}
	}
}

func word(round, i int) uint64 { return (uint64(round)<<32 ^ uint64(i)) * 0x9e3779b97f4a7c15 }

// fill writes a block: the flag, and words that differ in every round and position.
func fill(b []uint64, round int) {
	b[0] = 0
	for i := range b[1:] {
		b[1+i] = word(round, i)
	}
}

func check(b []uint64, round int) error {
	for i, v := range b[1:] {
		if v != word(round, i) {
			return fmt.Errorf("round %d: word %d of %d is %#x, want %#x", round, i, len(b), v, word(round, i))
		}
	}
	return nil
}
