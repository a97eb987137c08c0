package engine

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
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
	for channel.goes = true; len(e.folds.all) == 0; { // the channel copies the messages, too
		e.Turn()
	}
	channel.goes = false
	for range 10 {
		batch(t, e, apps, 64)
	}
	if len(e.folds.all) == 0 {
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
	for len(e.folds.all) == 0 {
		e.Turn()
	}
	for _, rank := range []uint32{0, 1} {
		e.expel(e.byRank[rank], errors.New("its memory is wrong"))
	}
	for range 1000 {
		e.Turn()
	}
	if len(e.folds.all) != 0 || copies.Pending() {
		t.Error("folds of ranks that have ended go on")
	}
	if e.core.Stats().Collectives != 0 {
		t.Error("collectives of ranks that have ended are kept")
	}
}

// folding submits folds of a rank, of half of its arena each.
func folding(t *testing.T, e *Engine, rank uint32, n int, do copyeng.Work) {
	t.Helper()
	size := uint64(len(arena(e, rank))) / 2
	ref := link.Ref{Region: e.byRank[rank].regions[1], Len: size}
	for range n {
		id := uint64(len(e.folds.all)) | 1<<60
		if !e.folds.Fold(rank, id, 0, 0, ref, ref) {
			t.Fatal("the fold is not taken")
		}
		e.folds.all[id].do = do
	}
}

// TestRanksTakeTurnsInFolds checks that the one fold of a rank does not wait for the many of
// another one, and that folds that wait for a channel are not looked at.
func TestRanksTakeTurnsInFolds(t *testing.T) {
	channel := &haltWork{}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	e, _ := offloading(t, copies, Wait{})
	pieces, mine := [2]int{}, len(arena(e, 1))/2/link.PieceMax
	for rank, n := range []int{100, 1} {
		folding(t, e, uint32(rank), n, func([]byte, []byte) error { pieces[rank]++; return nil })
	}
	e.Turn()
	if all := pieces[0] + pieces[1]; all != copyeng.Window {
		t.Errorf("%d pieces are submitted to a channel that stands still, want %d", all, copyeng.Window)
	}
	channel.goes = true
	for pieces[1] < mine {
		e.Turn()
	}
	if pieces[0] > 2*mine+2*copyeng.Window {
		t.Errorf("%d pieces of the other rank came before the last of %d", pieces[0], mine)
	}
	for len(e.folds.all) > 0 {
		e.Turn()
	}
}

// TestFoldsWithoutChannels checks that a turn combines a bounded number of bytes when no channel
// is left.
func TestFoldsWithoutChannels(t *testing.T) {
	channel := &haltWork{halt: halt{goes: true}, err: copyeng.ErrFault}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: channel}} })
	e, _ := offloading(t, copies, Wait{})
	pieces := 0
	folding(t, e, 0, 1, func([]byte, []byte) error { return nil })
	folding(t, e, 1, 1, func([]byte, []byte) error { pieces++; return nil })
	for copies.Alive() {
		e.Turn()
	}
	before := pieces
	e.folds.waiting.Add(1, &fold{id: 1 << 61, do: func([]byte, []byte) error { pieces++; return nil }, dst: link.Ref{Region: e.byRank[1].regions[1], Len: 1 << 20}, src: link.Ref{Region: e.byRank[1].regions[1], Len: 1 << 20}})
	e.folds.all[1<<61] = nil
	e.Turn()
	if n := (pieces - before) * link.PieceMax; n == 0 || n > inlineBytes {
		t.Errorf("a turn has combined %d bytes, want %d at most", n, inlineBytes)
	}
	for !e.folds.waiting.Empty() {
		e.Turn()
	}
}
