package engine

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

// largeBytes is the size of a large message; the arenas of the ranks have 1 MiB.
const largeBytes = 768 << 10

// offloading makes a pod with two ranks whose large messages go through Copies.
func offloading(t *testing.T, copies *copyeng.Copies, wait Wait) (*Engine, []*app) {
	begin := time.Now()
	e, apps := podWith(t, 2, Config{
		Core: core.Config{PodOf: make([]int32, 2), Pods: 1}, Remote: local.New(0, nil), Copies: copies, Wait: wait,
	}, func() int64 { return int64(time.Since(begin)) + 1 })
	closing(t, e)
	return e, apps
}

// arena returns the arena of a rank.
func arena(e *Engine, rank uint32) []byte { return e.regions[e.byRank[rank].regions[1]] }

// sendLarge submits a large message from rank 0 to rank 1, and its receive.
func sendLarge(t *testing.T, e *Engine, apps []*app, round int) {
	for i := range arena(e, 0) {
		arena(e, 0)[i] = byte(i*7 + i>>11 + round)
	}
	clear(arena(e, 1))
	for rank, op := range []shm.Op{shm.OpSend, shm.OpRecv} {
		d := shm.Descriptor{Op: op, Req: 1000, Class: shm.ClassArena, Peer: uint32(1 - rank), Tag: 9}
		d.SetBody(64, largeBytes, 0, 0)
		if ok, err := apps[rank].submit.Push(&d); !ok || err != nil {
			t.Error("not submitted", err)
		}
	}
}

// checkLarge checks the bytes of a large message.
func checkLarge(t *testing.T, e *Engine) {
	t.Helper()
	if !bytes.Equal(arena(e, 0)[64:64+largeBytes], arena(e, 1)[64:64+largeBytes]) {
		t.Error("the message has other bytes")
	}
}

// TestOthersAreServedMeanwhile checks that the engine's thread copies no byte of a large
// message, and carries small messages while it is copied.
func TestOthersAreServedMeanwhile(t *testing.T) {
	channel := &halt{}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	e, apps := offloading(t, copies, Wait{})
	sendLarge(t, e, apps, 0)
	for copies.Stats().Pending == 0 {
		e.Turn()
	}
	for range 10 {
		batch(t, e, apps, 64)
	}
	if s := copies.Stats(); s.Offloaded != 0 || s.Inline != 0 {
		t.Errorf("%d bytes were copied by the channel, which stands still, and %d by the engine", s.Offloaded, s.Inline)
	}
	if e.PrepareSleep(); !e.arm() {
		t.Error("the engine may sleep while copies are pending in a channel that cannot ring")
	}
	e.CancelSleep()
	channel.goes = true
	var d shm.Descriptor
	for !apps[1].complete.Pop(&d) {
		e.Turn()
	}
	checkLarge(t, e)
	if s := copies.Stats(); s.Offloaded != largeBytes || s.Inline != 0 {
		t.Errorf("%d bytes of %d were copied by the channel, and %d by the engine", s.Offloaded, largeBytes, s.Inline)
	}
}

// halt is a channel that ends no copy before the test lets it.
type halt struct {
	copyeng.CPU
	goes bool
}

func (h *halt) Poll(done func(uint64, error)) int {
	if !h.goes {
		return 0
	}
	return h.CPU.Poll(done)
}

// TestSleepEndsWithTheCopies checks that an engine that sleeps while a thread copies is woken
// by the thread, and that the message ends then.
func TestSleepEndsWithTheCopies(t *testing.T) {
	copies := copyeng.New(copyeng.Config{Kind: "helper", Threshold: copyengtest.Least, Open: func(bell int) ([]*copyeng.Lane, error) {
		h := copyeng.NewHelper(bell)
		return []*copyeng.Lane{{Channel: h, Alert: h.Alert}}, nil
	}})
	e, apps := offloading(t, copies, Wait{Yield: 1})
	for !copies.Takes(copyengtest.Least) {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	const rounds = 100
	for round := range rounds {
		if err := e.InTurn(func() { sendLarge(t, e, apps, round) }); err != nil {
			t.Fatal(err)
		}
		var d shm.Descriptor
		for limit := time.Now().Add(timeout); !apps[1].complete.Pop(&d); time.Sleep(20 * time.Microsecond) {
			if time.Now().After(limit) {
				t.Fatal("the message does not end")
			}
		}
		for !apps[0].complete.Pop(&d) {
			runtime.Gosched()
		}
		checkLarge(t, e)
	}
	v, err := e.View()
	if err != nil {
		t.Fatal(err)
	}
	if v.Copies.Offloaded != rounds*largeBytes || v.Copies.Inline != 0 || v.Turns.Sleeps == 0 {
		t.Errorf("%d bytes were copied by the thread, %d by the engine, which slept %d times", v.Copies.Offloaded, v.Copies.Inline, v.Turns.Sleeps)
	}
	cancel()
	<-ended
}
