package engine

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

// TestNoSleepOnUnfinishedWork: a peer that has left is declared dead by the timer while the
// engine sleeps. The work that this leaves for Advance is done at once, not when another
// event wakes the engine.
func TestNoSleepOnUnfinishedWork(t *testing.T) {
	loop := local.New(0, nil)
	begin := time.Now()
	e, err := New(Config{
		Core: core.Config{PodOf: []int32{0, 1}, Pods: 2, DeadAfter: 600 * time.Millisecond}, Local: loop, Remote: fullLink{}, Dialer: noDialer{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Wait: Wait{Yield: 1},
	}, func() int64 { return int64(time.Since(begin)) + 1 })
	if err != nil {
		t.Fatal(err)
	}
	closing(t, e)
	loop.SetMemory(e)
	e.core.LinkUp(e.clock(), 1, link.Caps{})
	if err := e.core.Deliver(e.clock(), 1, ackOf(0), nil); err != nil {
		t.Fatal(err)
	}
	if err := e.core.Deliver(e.clock(), 1, byeOf(1), nil); err != nil {
		t.Fatal(err)
	}
	for e.core.Advance(e.clock()) > 0 {
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	time.Sleep(2 * time.Second) // the peer is dead after 600 ms
	var pending bool
	looked := make(chan struct{})
	// The engine is asleep, and a call wakes it for a whole turn: the call checks the
	// unfinished work before the turn does it.
	if err := e.inbox.post(func(e *Engine) { pending = e.core.Pending(); close(looked) }); err != nil {
		t.Fatal(err)
	}
	<-looked
	cancel()
	<-ended
	if pending {
		t.Error("the engine has slept on work that time had brought about")
	}
}

func ackOf(ack uint64) *wire.Header {
	return &wire.Header{Type: wire.Ack, Ack: ack, Credit: 1 << 20 / wire.CreditUnit}
}

func byeOf(seq uint64) *wire.Header {
	return &wire.Header{Type: wire.Bye, Seq: seq, Src: 1, Credit: 1 << 20 / wire.CreditUnit}
}

type fullLink struct{ full }

func (fullLink) Forget(link.Peer) {}
