package main

import (
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// The parts of a fairness test. A pair that exchanges 8 bytes is watched while
// ranks beside it, served by the same sidecars, move much; in two pods there is
// a third one that is slow, and ranks that only attend.
type fairnessParts struct{ ping, pong, busy, partner, slow int }

var (
	onePod    = fairnessParts{ping: 0, pong: 1, busy: 2, partner: 3, slow: -1}
	threePods = fairnessParts{ping: 0, pong: 2, busy: 1, partner: 3, slow: 5}
)

// Tags of what the parts tell each other.
const (
	begunTag = 21 + iota
	overTag
	roundTag
	loadTag
)

// fairness is a running test.
type fairness struct {
	*meter
	fairnessParts
	mem    []byte
	window *outrigger.Window[byte]
	pair   *outrigger.Comm // the busy rank and its partner
}

func (m *meter) fairness() error {
	f := &fairness{meter: m, fairnessParts: threePods}
	if m.c.Size() == 4 {
		f.fairnessParts = onePod
	}
	if err := f.prepare(); err != nil {
		return err
	}
	for _, load := range bench.Loads(f.slow >= 0) {
		if err := m.c.Barrier(m.ctx); err != nil {
			return err
		}
		if err := f.play(load); err != nil {
			return fmt.Errorf("beside %s: %w", load, err)
		}
	}
	return f.window.Free(m.ctx)
}

// prepare makes the memory that is moved, on the ranks that move it.
func (f *fairness) prepare() error {
	rank := f.c.Rank()
	moves := rank == f.busy || rank == f.partner
	var err error
	if moves || rank == f.slow {
		if f.mem, err = outrigger.Alloc[byte](f.s, f.method.FairnessBytes()); err != nil {
			return err
		}
	}
	color := 1
	if moves {
		color = 0
	}
	if f.pair, err = f.c.Split(f.ctx, color, rank); err != nil {
		return err
	}
	var local []byte
	if rank == f.partner {
		local = f.mem
	}
	f.window, err = outrigger.NewWindow(f.ctx, f.c, local)
	return err
}

func (f *fairness) play(load string) error {
	switch f.c.Rank() {
	case f.ping:
		return f.watch(load)
	case f.pong:
		return f.echo()
	case f.busy:
		return f.keepBusy(load)
	case f.partner, f.slow:
		return f.attend(load)
	}
	return nil
}

// watch takes the time of round trips once the load has begun.
func (f *fairness) watch(load string) error {
	if _, err := outrigger.Recv(f.ctx, f.c, make([]byte, 0), f.busy, begunTag); err != nil {
		return err
	}
	var trips []float64
	word := []uint64{1}
	for begun := time.Now(); time.Since(begun) < f.method.FairnessSample(); {
		sent := time.Now()
		if err := outrigger.Send(f.ctx, f.c, word, f.pong, dataTag); err != nil {
			return err
		}
		if _, err := outrigger.Recv(f.ctx, f.c, word, f.pong, dataTag); err != nil {
			return err
		}
		trips = append(trips, time.Since(sent).Seconds()*1e6)
	}
	word[0] = 0
	if err := outrigger.Send(f.ctx, f.c, word, f.pong, dataTag); err != nil {
		return err
	}
	if err := outrigger.Send(f.ctx, f.c, word, f.busy, overTag); err != nil {
		return err
	}
	return f.print(bench.FairnessFigure(load, f.method.FairnessBytes(), trips))
}

// echo answers until it is told the end.
func (f *fairness) echo() error {
	word := []uint64{0}
	for {
		if _, err := outrigger.Recv(f.ctx, f.c, word, f.ping, dataTag); err != nil || word[0] == 0 {
			return err
		}
		if err := outrigger.Send(f.ctx, f.c, word, f.ping, dataTag); err != nil {
			return err
		}
	}
}

// keepBusy repeats the load until the watch is over.
func (f *fairness) keepBusy(load string) error {
	if err := outrigger.Send(f.ctx, f.c, []byte{}, f.ping, begunTag); err != nil {
		return err
	}
	with := f.with(load)
	for {
		_, over, err := f.c.Iprobe(f.ping, overTag)
		if err != nil {
			return err
		}
		again := []byte{1}
		if over || load == bench.LoadNone {
			again[0] = 0
		}
		for _, rank := range []int{f.partner, f.slow} {
			if rank < 0 || again[0] == 1 && rank != with {
				continue
			}
			if err := outrigger.Send(f.ctx, f.c, again, rank, roundTag); err != nil {
				return err
			}
		}
		if again[0] == 0 {
			_, err := outrigger.Recv(f.ctx, f.c, make([]uint64, 1), f.ping, overTag)
			return err
		}
		if err := f.move(load, with); err != nil {
			return err
		}
	}
}

// with is whom a load goes to.
func (f *fairness) with(load string) int {
	if load == bench.LoadSlowPeer {
		return f.slow
	}
	return f.partner
}

// move is one round of a load, by the busy rank.
func (f *fairness) move(load string, with int) error {
	switch load {
	case bench.LoadSend, bench.LoadSlowPeer:
		return outrigger.Ssend(f.ctx, f.c, f.mem, with, loadTag)
	case bench.LoadPut:
		if err := f.window.Put(f.ctx, f.mem, with, 0); err != nil {
			return err
		}
		return f.window.Flush(f.ctx, with)
	case bench.LoadGet:
		return f.window.Get(f.ctx, f.mem, with, 0)
	}
	return f.reduce()
}

func (f *fairness) reduce() error {
	half := len(f.mem) / 2
	return outrigger.Allreduce(f.ctx, f.pair, f.mem[:half], f.mem[half:], outrigger.Max)
}

// attend is the other side of the busy rank's rounds.
func (f *fairness) attend(load string) error {
	again := []byte{0}
	for {
		if _, err := outrigger.Recv(f.ctx, f.c, again, f.busy, roundTag); err != nil || again[0] == 0 {
			return err
		}
		var err error
		switch load {
		case bench.LoadSend, bench.LoadSlowPeer:
			_, err = outrigger.Recv(f.ctx, f.c, f.mem, f.busy, loadTag)
		case bench.LoadReduction:
			err = f.reduce()
		}
		if err != nil {
			return err
		}
	}
}
