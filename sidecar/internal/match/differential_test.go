package match

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pair runs every operation on the Queue and on the oracle and compares.
type pair struct {
	t     *testing.T
	fast  *Queue
	slow  oracle
	stale []Ref // Refs of both sides, most of them no longer valid
	next  uint32
}

func (d *pair) post(p Pattern) {
	if d.fast.Full(p) {
		return
	}
	d.next++
	r := d.fast.Post(p, d.next)
	d.slow.posted = append(d.slow.posted, oracleEntry{pattern: p, handle: d.next, ref: r})
	d.stale = append(d.stale, r)
}

func (d *pair) park(e Envelope) {
	d.next++
	r := d.fast.Park(e, d.next)
	d.slow.parked = append(d.slow.parked, oracleEntry{envelope: e, handle: d.next, ref: r})
	d.stale = append(d.stale, r)
}

func (d *pair) arrive(e Envelope) {
	h, ok := d.fast.Arrive(e)
	h2, ok2 := d.slow.arrive(e)
	d.same("Arrive", e, h, ok, h2, ok2)
}

func (d *pair) take(p Pattern) {
	h, ok := d.fast.Take(p)
	h2, ok2 := d.slow.take(p)
	d.same("Take", p, h, ok, h2, ok2)
}

func (d *pair) peek(p Pattern) {
	h, ok := d.fast.Peek(p)
	h2, ok2 := d.slow.peek(p)
	d.same("Peek", p, h, ok, h2, ok2)
}

func (d *pair) cancel(r Ref) {
	d.same("Cancel", r, 0, d.fast.Cancel(r), 0, d.slow.cancel(r))
}

func (d *pair) drop(r Ref) {
	d.same("Drop", r, 0, d.fast.Drop(r), 0, d.slow.drop(r))
}

func (d *pair) same(op string, arg any, h uint32, ok bool, h2 uint32, ok2 bool) {
	d.t.Helper()
	if h != h2 || ok != ok2 {
		d.t.Fatalf("%s(%+v) = %d, %t; want %d, %t", op, arg, h, ok, h2, ok2)
	}
}

// lists compares the results of the iterations of tear-down.
func (d *pair) lists() {
	d.t.Helper()
	collect := func(each func(func(uint32) bool)) []uint32 {
		h := []uint32{}
		each(func(x uint32) bool { h = append(h, x); return true })
		return h
	}
	if diff := cmp.Diff(handlesOf(d.slow.posted), collect(d.fast.EachPosted)); diff != "" {
		d.t.Fatalf("posted, oldest first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(handlesOf(d.slow.parked), collect(d.fast.EachParked)); diff != "" {
		d.t.Fatalf("parked, oldest first (-want +got):\n%s", diff)
	}
	if d.fast.Posted() != len(d.slow.posted) || d.fast.Parked() != len(d.slow.parked) {
		d.t.Fatalf("Posted, Parked = %d, %d; want %d, %d",
			d.fast.Posted(), d.fast.Parked(), len(d.slow.posted), len(d.slow.parked))
	}
}

// step runs one random operation. The key space is small, so that most operations find
// something.
func (d *pair) step(r *rand.Rand, masks []uint64) {
	e := Envelope{Context: r.Uint32N(2), Source: r.Uint32N(3), Tag: r.Uint64N(6)}
	p := Pattern{Context: e.Context, Source: e.Source, Tag: e.Tag, Ignore: masks[r.IntN(len(masks))]}
	if r.IntN(4) == 0 {
		p.Source = AnySource
	}
	switch r.IntN(8) {
	case 0, 1:
		d.post(p)
	case 2:
		d.arrive(e)
	case 3, 4:
		d.park(e)
	case 5:
		d.take(p)
	case 6:
		d.peek(p)
	default:
		d.stray(r)
	}
}

// stray uses a Ref that may be stale, of the wrong side or live.
func (d *pair) stray(r *rand.Rand) {
	if len(d.stale) == 0 {
		return
	}
	ref := d.stale[r.IntN(len(d.stale))]
	if r.IntN(2) == 0 {
		d.cancel(ref)
	} else {
		d.drop(ref)
	}
}

// TestAgainstList runs random operations. There are eleven masks, with and without a source,
// so that there are more kinds of patterns than classes: the overflow list, the walk and the
// reuse of classes are all used.
func TestAgainstList(t *testing.T) {
	few := []uint64{0, ^uint64(0)}
	many := []uint64{0, 0, ^uint64(0), 1, 2, 3, 4, 5, 6, 7, 1 << 63, ^uint64(1)}
	for seed := range uint64(60) {
		masks := few
		if seed%2 == 1 {
			masks = many
		}
		r := rand.New(rand.NewPCG(seed, 1))
		d := &pair{t: t, fast: NewSeeded(seed)}
		t.Logf("seed %d", seed)
		for i := range 4000 {
			d.step(r, masks)
			if i%400 == 0 {
				d.lists()
			}
			if i%1000 == 999 {
				d.drain() // so that classes become empty and are bound anew
			}
		}
	}
}

// drain empties both sides through EachPosted and EachParked as tear-down does.
func (d *pair) drain() {
	d.fast.EachPosted(func(uint32) bool {
		d.cancel(d.slow.posted[0].ref)
		return true
	})
	d.fast.EachParked(func(uint32) bool {
		d.drop(d.slow.parked[0].ref)
		return true
	})
	d.lists()
}

// FuzzQueue lets the fuzzer choose the operations: three bytes each.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 2, 2, 1, 2, 1, 0, 0, 3, 9, 9})
	f.Add([]byte("post park take peek arrive cancel drop"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		d := &pair{t: t, fast: NewSeeded(uint64(len(ops)))}
		for ; len(ops) >= 3; ops = ops[3:] {
			d.decode(ops[0], ops[1], ops[2])
		}
		d.lists()
	})
}

func (d *pair) decode(op, key, mask byte) {
	e := Envelope{Context: uint32(key >> 7), Source: uint32(key >> 5 & 3), Tag: uint64(key & 31)}
	p := Pattern{Context: e.Context, Source: e.Source, Tag: e.Tag, Ignore: uint64(mask & 31)}
	if mask&32 != 0 {
		p.Ignore = ^p.Ignore
	}
	if mask&64 != 0 {
		p.Source = AnySource
	}
	switch op % 7 {
	case 0:
		d.post(p)
	case 1:
		d.arrive(e)
	case 2:
		d.park(e)
	case 3:
		d.take(p)
	case 4:
		d.peek(p)
	case 5:
		d.cancel(Ref{uint32(key), uint32(mask)})
	default:
		d.drop(Ref{uint32(key), uint32(mask)})
	}
}
