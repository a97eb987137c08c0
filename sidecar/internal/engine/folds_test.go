package engine

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
)

// foldCount is the number of elements of an allreduce: a vector of 256 KiB.
const foldCount = 32 << 10

// Offsets in an arena.
const (
	foldIn    = 0
	foldOut   = 8 * foldCount
	foldBlock = 16 * foldCount
)

// reduceAll makes all ranks add their vectors of float64.
func reduceAll(t *testing.T, e *Engine, apps []*app) {
	t.Helper()
	for rank, a := range apps {
		mem := arena(e, uint32(rank))
		for i := range foldCount {
			binary.LittleEndian.PutUint64(mem[foldIn+8*i:], math.Float64bits(float64(i*(rank+1))))
		}
		b := shm.CollBlock{
			Kind: shm.CollAllreduce, Type: shm.TypeFloat64, Op: shm.ReduceSum, Flags: shm.CollCommutative, Count: foldCount, Elem: 8,
			In: foldIn, InBytes: 8 * foldCount, Out: foldOut, OutBytes: 8 * foldCount,
		}
		b.ScratchBytes = shm.CollScratch[int](&b, rank, len(apps), nil)
		b.Scratch = foldBlock + shm.CollBlockBytes
		b.Encode(mem[foldBlock:])
		d := shm.Descriptor{Op: shm.OpColl, Req: 1000, Class: shm.ClassArena}
		d.SetBody(foldBlock, shm.CollBlockBytes, 0, 0)
		if ok, err := a.submit.Push(&d); !ok || err != nil {
			t.Fatal("not submitted", err)
		}
	}
}

// reduced waits for the completions of all ranks, and returns their status.
func reduced(t *testing.T, e *Engine, apps []*app) (all []shm.Status) {
	t.Helper()
	for _, a := range apps {
		var d shm.Descriptor
		for !a.complete.Pop(&d) {
			e.Turn()
		}
		all = append(all, d.Status)
	}
	return all
}

// checkReduced checks the sums of all ranks.
func checkReduced(t *testing.T, e *Engine, apps []*app, statuses []shm.Status) {
	t.Helper()
	sum := len(apps) * (len(apps) + 1) / 2
	for rank, s := range statuses {
		if s != shm.StatusOK {
			t.Fatalf("rank %d: status %d", rank, s)
		}
		for i := range foldCount {
			got := math.Float64frombits(binary.LittleEndian.Uint64(arena(e, uint32(rank))[foldOut+8*i:]))
			if want := float64(i * sum); got != want {
				t.Fatalf("rank %d, element %d is %v, want %v", rank, i, got, want)
			}
		}
	}
}

// counting counts what a channel combines.
type counting struct {
	copyeng.Worker
	bytes uint64
}

func (c *counting) Work(do copyeng.Work, dst, src []byte, token uint64) bool {
	if !c.Worker.Work(do, dst, src, token) {
		return false
	}
	c.bytes += uint64(len(src))
	return true
}

// TestFoldsOnThreads checks that a thread combines the vectors of an allreduce, and right.
func TestFoldsOnThreads(t *testing.T) {
	h := copyeng.NewHelper(-1)
	channel := &counting{Worker: h}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel, Alert: h.Alert}} })
	e, apps := offloading(t, copies, Wait{})
	for range 20 {
		channel.bytes = 0
		reduceAll(t, e, apps)
		checkReduced(t, e, apps, reduced(t, e, apps))
		// Two ranks add their vectors, each the half or all of it.
		if channel.bytes < 8*foldCount {
			t.Fatalf("the thread has combined %d bytes, want those of a vector at least, %d", channel.bytes, 8*foldCount)
		}
	}
}

// haltWork is a Worker that ends nothing before the test lets it.
type haltWork struct {
	halt
	err   error // of each piece of work
	works map[uint64]bool
}

func (h *haltWork) Work(do copyeng.Work, dst, src []byte, token uint64) bool {
	if h.err == nil && do(dst, src) != nil {
		return false
	}
	if h.works == nil {
		h.works = map[uint64]bool{}
	}
	h.works[token] = true
	return h.Submit(src, src, token)
}

func (h *haltWork) Poll(done func(uint64, error)) int {
	return h.halt.Poll(func(token uint64, err error) {
		if h.works[token] {
			delete(h.works, token)
			err = h.err
		}
		done(token, err)
	})
}

// TestOthersAreServedDuringAFold checks that a rank's messages are carried while a channel
// combines, and that the collective ends when the channel does.
func TestOthersAreServedDuringAFold(t *testing.T) {
	channel := &haltWork{}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	e, apps := offloading(t, copies, Wait{})
	reduceAll(t, e, apps)
	for channel.goes = true; len(e.folds.list) == 0; { // the channel copies the messages, too
		e.Turn()
	}
	channel.goes = false
	for range 10 {
		batch(t, e, apps, 64)
	}
	if len(e.folds.list) == 0 {
		t.Error("the fold has ended, and its channel stands still")
	}
	channel.goes = true
	checkReduced(t, e, apps, reduced(t, e, apps))
}

// TestFoldFails checks that a collective fails if memory of its fold is not accessible.
func TestFoldFails(t *testing.T) {
	channel := &haltWork{halt: halt{goes: true}, err: copyeng.ErrFault}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	e, apps := offloading(t, copies, Wait{})
	reduceAll(t, e, apps)
	for rank, s := range reduced(t, e, apps) {
		if s == shm.StatusOK {
			t.Errorf("rank %d: the collective has succeeded", rank)
		}
	}
}

// TestFoldOfADeadRank checks that nothing uses the memory of a rank whose session has ended
// while a channel combines for it, and that its collective is forgotten.
func TestFoldOfADeadRank(t *testing.T) {
	h := copyeng.NewHelper(-1)
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: h, Alert: h.Alert}} })
	e, apps := offloading(t, copies, Wait{})
	reduceAll(t, e, apps)
	for len(e.folds.list) == 0 {
		e.Turn()
	}
	for _, rank := range []uint32{0, 1} {
		e.expel(e.byRank[rank], errors.New("its memory is wrong"))
	}
	for range 1000 {
		e.Turn()
	}
	if len(e.folds.list) != 0 || copies.Pending() {
		t.Error("folds of ranks that have ended go on")
	}
	if e.core.Stats().Collectives != 0 {
		t.Error("collectives of ranks that have ended are kept")
	}
}
