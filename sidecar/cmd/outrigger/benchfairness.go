package main

import (
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// fairnessRoles has the rank of each role in a fairness test. Ping and pong exchange
// messages of 8 bytes, whose round trips are timed, while busy and partner, which the same
// sidecars serve, move large amounts of data. In a job of several pods the sidecar of a
// third pod is slow, and one of the loads goes to slow, a rank of that pod. The other ranks
// only take part in the collectives.
type fairnessRoles struct{ ping, pong, busy, partner, slow int }

var (
	onePod    = fairnessRoles{ping: 0, pong: 1, busy: 2, partner: 3, slow: -1}
	threePods = fairnessRoles{ping: 0, pong: 2, busy: 1, partner: 3, slow: 5}
)

// Tags of the messages between the roles.
const (
	begunTag = 21 + iota // busy to ping: the load has begun
	overTag              // ping to busy: the samples are complete
	roundTag             // busy to partner and slow: whether there is a further round
	loadTag              // data of the load
)

// fairness is a fairness test in progress.
type fairness struct {
	*meter
	fairnessRoles
	mem    []byte
	window *outrigger.Window[byte]
	pair   *outrigger.Comm // the busy rank and its partner
}

func (m *meter) fairness() error {
	f := &fairness{meter: m, fairnessRoles: threePods}
	if m.c.Size() == 4 {
		f.fairnessRoles = onePod
	}
	if err := f.prepare(); err != nil {
		return err
	}
	for _, load := range bench.Loads(f.slow >= 0) {
		if err := m.c.Barrier(m.ctx); err != nil {
			return err
		}
		if err := f.runRole(load); err != nil {
			return fmt.Errorf("during load %s: %w", load, err)
		}
	}
	return f.window.Free(m.ctx)
}

// prepare allocates the load's memory on the ranks that move it, and creates the window
// and the communicator of busy and partner.
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

// runRole does the part of this rank under a load.
func (f *fairness) runRole(load string) error {
	switch f.c.Rank() {
	case f.ping:
		return f.measureTrips(load)
	case f.pong:
		return f.echo()
	case f.busy:
		return f.repeatLoad(load)
	case f.partner, f.slow:
		return f.answerLoad(load)
	}
	return nil
}

// measureTrips times round trips once the load has begun.
func (f *fairness) measureTrips(load string) error {
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

// echo answers the messages of ping until one holds 0.
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

// repeatLoad repeats the load until ping has its samples.
func (f *fairness) repeatLoad(load string) error {
	if err := outrigger.Send(f.ctx, f.c, []byte{}, f.ping, begunTag); err != nil {
		return err
	}
	with := f.loadPeer(load)
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

// loadPeer returns the rank that a load goes to.
func (f *fairness) loadPeer(load string) int {
	if load == bench.LoadSlowPeer {
		return f.slow
	}
	return f.partner
}

// move does one round of a load, on the busy rank.
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

// answerLoad is the other side of repeatLoad.
func (f *fairness) answerLoad(load string) error {
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
