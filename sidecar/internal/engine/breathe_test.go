package engine

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

type calling struct{ full }

func (calling) CallsC() {}

// TestBreathe: an engine whose link calls C goes through Go's scheduler every 8 ms, or 5 if it
// has nothing to do, and no other one does.
func TestBreathe(t *testing.T) {
	for _, x := range []struct {
		remote link.Link
		work   int
		want   []int64 // when it did, of 30 ms
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
			before := e.breath
			if e.Breathe(x.work); e.breath != before {
				got = append(got, ms)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%T: at %v ms, want %v", x.remote, got, x.want)
		}
	}
}
