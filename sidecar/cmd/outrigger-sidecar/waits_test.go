package main

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// TestRepetitionsAreWaits checks that probes and accesses that a rank repeats in vain are waits, among
// its requests in the order of their ages, and that a rank which only probes is not taken for one that
// waits for nothing.
func TestRepetitionsAreWaits(t *testing.T) {
	second := int64(time.Second)
	r := rankOf(&engine.Waits{
		Now: 10 * second, Free: true,
		Waits: core.Waits{Attached: true, Oldest: []core.Wait{{Kind: core.WaitRecv, Since: 7 * second, Peer: 1}}},
		Vain: []trace.Probe{
			{Peer: 2, Tag: 5, Since: 4 * second},
			{Peer: shm.AnySource, Claims: true, Since: 8 * second},
		},
		MoreVain: true,
	}, 4)
	want := []why.Wait{
		{Kind: why.Probe, Repeats: why.Iprobe, Peer: 2, Tag: 5, Seconds: 6},
		{Kind: why.Recv, Peer: 1, Seconds: 3},
		{Kind: why.Probe, Repeats: why.Improbe, Peer: why.Any, Seconds: 2},
	}
	if len(r.Waits) != len(want) || r.More != 1 {
		t.Fatalf("%+v", r)
	}
	for i, w := range want {
		if g := r.Waits[i]; g.Kind != w.Kind || g.Repeats != w.Repeats || g.Peer != w.Peer || g.Tag != w.Tag || g.Seconds != w.Seconds {
			t.Errorf("wait %d is %+v, want %+v", i, g, w)
		}
	}
	r = rankOf(&engine.Waits{
		Now: 10 * second, Repeats: &engine.Repeats{Target: 2, Since: 4 * second},
		Waits: core.Waits{Attached: true, Oldest: []core.Wait{
			{Kind: core.WaitRecv, Since: 9 * second, Peer: 2, Context: shm.ProviderContext + 3},
			{Kind: core.WaitRecv, Since: 7 * second, Peer: 1, Context: shm.ProviderContext},
		}},
	}, 4)
	if len(r.Waits) != 2 || r.Waits[0].Repeats != why.Access || r.Waits[0].Peer != 2 || r.Waits[0].Seconds != 6 || r.Waits[1].Peer != 1 {
		t.Errorf("a rank that repeats accesses: %+v", r)
	}
	r = rankOf(&engine.Waits{Now: 10 * second, Free: true, Waits: core.Waits{Attached: true}, Vain: []trace.Probe{{}}}, 4)
	if !r.Free || len(r.Waits) != 1 {
		t.Errorf("a rank that only probes: %+v", r)
	}
}
