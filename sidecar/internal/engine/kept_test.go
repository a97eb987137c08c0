package engine

import (
	"context"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// TestNoSleepOnKeptCompletions checks that an application that has not read its completions
// for a while gets the rest of them when it reads, although it does not ring: the engine
// may have gone to sleep while the ring was full.
func TestNoSleepOnKeptCompletions(t *testing.T) {
	e, _ := pod(t, 1)
	closing(t, e)
	const entries = 16
	g := segment.Geometry{SubmitEntries: entries, CompleteEntries: entries, SlabBytes: 64 << 10}
	control, err := segment.Format(pages(g.Bytes()), g, 0)
	if err != nil {
		t.Fatal(err)
	}
	small, err := session.New(control, pages(1<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	full := e.active[0]
	mem, n := control.SubmitRing()
	submit, err := ring.NewProducer(mem, n)
	if err != nil {
		t.Fatal(err)
	}
	mem, n = control.CompleteRing()
	complete, err := ring.NewConsumer(mem, n)
	if err != nil {
		t.Fatal(err)
	}
	full.Session = small

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	push := func(d *shm.Descriptor) {
		t.Helper()
		for ctx.Err() == nil {
			ok, err := submit.Push(d)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				break
			}
		}
		if err := e.inbox.post(func(*Engine) {}); err != nil { // the doorbell
			t.Fatal(err)
		}
	}
	for i := range uint32(entries) {
		push(&shm.Descriptor{Op: shm.OpRecv, Req: i, Class: shm.ClassInline, InlineLen: 8})
	}
	for i := range uint32(entries) {
		d := shm.Descriptor{Op: shm.OpSend, Req: entries + i, Class: shm.ClassInline}
		d.SetInline([]byte("8 bytes."))
		push(&d)
	}
	asleep := func() bool { return e.asleep.Load() }
	for !asleep() && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // no event reports that the engine sleeps
	}
	got := 0
	for got < 2*entries && ctx.Err() == nil {
		var d shm.Descriptor
		for complete.Pop(&d) {
			got++
		}
		complete.Release()
	}
	if got != 2*entries {
		t.Errorf("%d of %d completions came while the engine slept", got, 2*entries)
	}
}
