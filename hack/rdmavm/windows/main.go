// windows accesses the memory of ranks in the other pod. It checks every word of puts and gets,
// records that are changed under a lock, and counters. It measures a put with its flush, and a
// get.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	rounds := flag.Int("rounds", 20, "of what is measured")
	enough := flag.String("soak", "", "instead of measuring, go on until this file exists")
	flag.Parse()
	if err := run(context.Background(), *rounds, *enough); err != nil {
		fmt.Fprintln(os.Stderr, "windows:", err)
		os.Exit(1)
	}
}

// Layout of a rank's part of the window, in words: room for the partner's puts, a record that
// all ranks change under a lock, and two counters.
const (
	room       = 1 << 17
	record     = 64
	recordAt   = room
	counterAt  = room + record
	swappedAt  = counterAt + 1
	partWords  = swappedAt + 1
	addsARound = 5
	burst      = 32 // number of puts before a flush
)

// sizes are the sizes of accesses, in words: some fit into one frame that is sent at once, some
// are near the limits of copying, and some are sent in pieces.
var sizes = []int{1, 8, 9, 64, 512, 520, 8192, 40_000, room}

// bench is the state of one rank.
type bench struct {
	ctx      context.Context
	rank     int
	size     int
	partner  int // rank of the partner, in the other pod
	win      *outrigger.Window[uint64]
	world    *outrigger.Comm
	src, dst []uint64
}

func run(ctx context.Context, rounds int, enough string) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	w := s.World()
	b := &bench{ctx: ctx, world: w, rank: w.Rank(), size: w.Size(), partner: (w.Rank() + w.Size()/2) % w.Size()}
	if b.size%2 != 0 {
		return fmt.Errorf("%d ranks, want two pods of as many", b.size)
	}
	part, err := outrigger.Alloc[uint64](s, partWords)
	if err != nil {
		return err
	}
	if b.src, err = outrigger.Alloc[uint64](s, room); err != nil {
		return err
	}
	if b.dst, err = outrigger.Alloc[uint64](s, room); err != nil {
		return err
	}
	clear(part)
	if b.win, err = outrigger.NewWindow(ctx, w, part); err != nil {
		return err
	}
	done, err := b.soak(enough)
	if err != nil {
		return err
	}
	if err := b.tally(done); err != nil {
		return err
	}
	if b.rank == 0 {
		fmt.Printf("windows: %d rounds, every word, record and counter right\n", done)
	}
	if enough == "" {
		if err := b.measure(rounds); err != nil {
			return err
		}
	}
	if err := b.win.Free(ctx); err != nil {
		return err
	}
	clear(part) // after Free, no other rank accesses the part
	return s.Close()
}

// soak runs rounds until the file enough exists, or one round if enough is empty. It returns the
// number of rounds.
func (b *bench) soak(enough string) (round int, err error) {
	over := make([]uint64, 1)
	for {
		if err := b.round(round); err != nil {
			return round, fmt.Errorf("round %d: %w", round, err)
		}
		round++
		if b.rank == 0 {
			if _, err := os.Stat(enough); enough == "" || err == nil {
				over[0] = 1
			}
		}
		if err := outrigger.Bcast(b.ctx, b.world, over, 0); err != nil || over[0] == 1 {
			return round, err
		}
	}
}

func word(rank, round, i int) uint64 {
	return (uint64(rank)<<48 ^ uint64(round)<<24 ^ uint64(i)) * 0x9e3779b97f4a7c15
}

// round puts and gets data of every size, changes a record, and increments the counters.
func (b *bench) round(round int) error {
	ctx := b.ctx
	for k, n := range sizes {
		at := (round * 17) % (room - n + 1)
		for i := range n {
			b.src[i] = word(b.rank, round*len(sizes)+k, i)
		}
		if err := b.win.Put(ctx, b.src[:n], b.partner, at); err != nil {
			return err
		}
		clear(b.src[:n]) // after Put has returned, the buffer may be changed
		if err := b.win.Flush(ctx, b.partner); err != nil {
			return err
		}
		if err := b.win.Get(ctx, b.dst[:n], b.partner, at); err != nil {
			return err
		}
		for i, v := range b.dst[:n] {
			if want := word(b.rank, round*len(sizes)+k, i); v != want {
				return fmt.Errorf("word %d of %d put at %d is %#x, want %#x", i, n, at, v, want)
			}
		}
	}
	for target := range b.size {
		if err := b.turn(target); err != nil {
			return err
		}
	}
	if err := b.epoch(round); err != nil {
		return err
	}
	for i := range addsARound {
		if _, err := b.win.FetchOp(ctx, 1, (b.rank+i)%b.size, counterAt, outrigger.Sum); err != nil {
			return err
		}
	}
	return b.swap(0)
}

// epoch checks a put of the partner into this rank's part that is synchronized by post, start,
// complete and wait, without the other ranks.
func (b *bench) epoch(round int) error {
	const n = 2000
	ctx, group := b.ctx, []int{b.partner}
	for i := range n {
		b.src[i] = word(b.rank, -1-round, i)
	}
	if err := errors.Join(b.win.Post(ctx, group), b.win.Start(ctx, group), b.win.Put(ctx, b.src[:n], b.partner, 0), b.win.Complete(ctx), b.win.Wait(ctx)); err != nil {
		return err
	}
	for i, v := range b.win.Local()[:n] {
		if want := word(b.partner, -1-round, i); v != want {
			return fmt.Errorf("word %d put in an epoch is %#x, want %#x", i, v, want)
		}
	}
	return b.world.Barrier(ctx) // no rank may begin the next round's puts before all ranks have checked
}

// turn adds one to every word of a record while it holds the record's lock.
func (b *bench) turn(target int) error {
	ctx, r := b.ctx, b.dst[:record]
	if err := b.win.Lock(ctx, target, true); err != nil {
		return err
	}
	if err := b.win.Get(ctx, r, target, recordAt); err != nil {
		return err
	}
	for i := range r {
		if r[i] != r[0] {
			return fmt.Errorf("the record of rank %d is half written: %v", target, r)
		}
	}
	for i := range r {
		r[i]++
	}
	if err := b.win.Put(ctx, r, target, recordAt); err != nil {
		return err
	}
	return b.win.Unlock(ctx, target)
}

// swap adds one to a word by compare and swap, and tries again if another rank has changed the word.
func (b *bench) swap(target int) error {
	for was := uint64(0); ; {
		old, err := b.win.CompareAndSwap(b.ctx, was, was+1, target, swappedAt)
		if err != nil || old == was {
			return err
		}
		was = old
	}
}

// tally checks the record and the counters of this rank's part.
func (b *bench) tally(rounds int) error {
	if err := b.win.Fence(b.ctx); err != nil {
		return err
	}
	part := b.win.Local()
	for i, v := range part[recordAt : recordAt+record] {
		if v != uint64(rounds*b.size) {
			return fmt.Errorf("word %d of the record of rank %d is %d, want %d", i, b.rank, v, rounds*b.size)
		}
	}
	want := 0
	for rank := range b.size {
		for i := range addsARound {
			if (rank+i)%b.size == b.rank {
				want += rounds
			}
		}
	}
	if part[counterAt] != uint64(want) || b.rank == 0 && part[swappedAt] != uint64(rounds*b.size) {
		return fmt.Errorf("the counters of rank %d are %d and %d, want %d and %d", b.rank, part[counterAt], part[swappedAt], want, rounds*b.size)
	}
	return b.world.Barrier(b.ctx)
}

// measure prints the times of a put with its flush and of a get, while the other ranks are idle.
func (b *bench) measure(rounds int) error {
	if b.rank != 0 {
		return b.world.Barrier(b.ctx)
	}
	for _, n := range sizes {
		puts, gets := make([]time.Duration, rounds), make([]time.Duration, rounds)
		for i := range rounds {
			begun := time.Now()
			if err := b.win.Put(b.ctx, b.src[:n], b.partner, 0); err != nil {
				return err
			}
			if err := b.win.Flush(b.ctx, b.partner); err != nil {
				return err
			}
			puts[i], begun = time.Since(begun), time.Now()
			if err := b.win.Get(b.ctx, b.dst[:n], b.partner, 0); err != nil {
				return err
			}
			gets[i] = time.Since(begun)
		}
		many := time.Duration(0)
		if n <= 64 {
			begun := time.Now()
			for range burst {
				if err := b.win.Put(b.ctx, b.src[:n], b.partner, 0); err != nil {
					return err
				}
			}
			if err := b.win.Flush(b.ctx, b.partner); err != nil {
				return err
			}
			many = time.Since(begun)
		}
		slices.Sort(puts)
		slices.Sort(gets)
		us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
		fmt.Printf("windows %7d bytes: put and flush %9.1f us, get %9.1f us (medians of %d)", 8*n, us(puts[rounds/2]), us(gets[rounds/2]), rounds)
		if many > 0 {
			fmt.Printf(", %d puts and a flush %.1f us", burst, us(many))
		}
		fmt.Println()
	}
	return b.world.Barrier(b.ctx)
}
