package engine

import (
	"io"
	"log/slog"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

// full is a link that accepts no frame.
type full struct{ link.Link }

func (full) Caps() link.Caps                   { return link.Caps{} }
func (full) Abilities() link.Abilities         { return link.Abilities{} }
func (full) Post(link.Peer, []*link.Frame) int { return 0 }
func (full) Poll(link.Sink) int                { return 0 }
func (full) Close() error                      { return nil }

// TestBlockedLinkIsNoWork checks that an engine whose link accepts nothing may sleep.
func TestBlockedLinkIsNoWork(t *testing.T) {
	loop := local.New(0, nil)
	e, err := New(Config{
		Core: core.Config{PodOf: []int32{0, 1}, Pods: 2}, Local: loop, Remote: full{}, Dialer: noDialer{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, func() int64 { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	closing(t, e)
	loop.SetMemory(e)
	e.Fail(&core.Failure{Reason: "so that there is a frame for the peer"})
	e.Turn()
	e.core.LinkUp(e.now, 1, link.Caps{})
	for range 10 { // the end of the job takes some turns
		e.Turn()
	}
	if work := e.Turn(); work != 0 {
		t.Errorf("a turn that could post nothing counts %d pieces of work, want 0", work)
	}
}
