package engine

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

type calling struct{ full }

func (calling) Abilities() link.Abilities { return link.Abilities{CallsC: true} }

// TestGosched checks that an engine whose link calls C enters Go's scheduler every 8 ms, or
// every 5 ms if it has nothing to do, and that other engines do not.
func TestGosched(t *testing.T) {
	for _, x := range []struct {
		remote link.Link
		work   int
		want   []int64 // when it did, in 30 ms
	}{{full{}, 0, nil}, {calling{}, 1, []int64{8, 16, 24}}, {calling{}, 0, []int64{5, 10, 15, 20, 25}}} {
		loop, now := local.New(0, nil), int64(0)
		e, err := New(Config{
			Core: core.Config{PodOf: []int32{0, 1}, Pods: 2}, Local: loop, Remote: x.remote, Dialer: noDialer{}, Log: slog.New(slog.DiscardHandler),
		}, func() int64 { return now })
		if err != nil {
			t.Fatal(err)
		}
		closing(t, e)
		loop.SetMemory(e)
		var got []int64
		for ms := range int64(30) {
			now = ms * 1e6
			e.Turn()
			before := e.lastGosched
			if e.Gosched(x.work); e.lastGosched != before {
				got = append(got, ms)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%T: at %v ms, want %v", x.remote, got, x.want)
		}
	}
}

// TestGoschedBeforeSleep checks that an engine that sleeps for short times enters the
// scheduler before a sleep, every 8 ms. In a long sleep it has lost its P, which has the
// same effect.
func TestGoschedBeforeSleep(t *testing.T) {
	loop, now, sleeps := local.New(0, nil), int64(0), int64(0)
	e, err := New(Config{
		Core: core.Config{PodOf: []int32{0, 1}, Pods: 2}, Local: loop, Remote: full{}, Dialer: noDialer{}, Log: slog.New(slog.DiscardHandler),
	}, func() int64 {
		now += sleeps // the engine reads the clock before and after a sleep
		return now
	})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, e)
	loop.SetMemory(e)
	for _, x := range []struct{ last, at, asleep, want int64 }{
		{0, 7, 1, 0}, {0, 8, 1, 8}, {5, 12, 2, 5}, {5, 12, 10, 32},
	} {
		e.lastGosched, e.now, now, sleeps = x.last*1e6, x.at*1e6, x.at*1e6, x.asleep*1e6
		if err := wake.Ring(e.sleeper.doorbell); err != nil {
			t.Fatal(err)
		}
		if !e.sleep() {
			t.Fatal("it does not sleep")
		}
		if e.lastGosched != x.want*1e6 {
			t.Errorf("lastGosched %d ms, now %d, asleep for %d: then %d, want %d", x.last, x.at, x.asleep, e.lastGosched/1e6, x.want)
		}
	}
}
