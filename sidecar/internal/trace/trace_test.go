package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

func call(op shm.Op, req, peer uint32) *shm.Descriptor {
	return &shm.Descriptor{Op: op, Req: req, Peer: peer, Class: shm.ClassArena}
}

func done(req, peer uint32, bytes uint64) *shm.Descriptor {
	d := &shm.Descriptor{Op: shm.OpDone, Req: req, Peer: peer}
	d.SetBody(0, bytes, 0, 0)
	return d
}

// TestTimes plays a receive from 10 to 30, a send inside of it that ends 5 later, a silent
// send, and a barrier from 50 to 60.
func TestTimes(t *testing.T) {
	x := NewTimes(0, 3, nil)
	x.Submit(10, call(shm.OpRecv, 0, shm.AnySource))
	x.Submit(20, call(shm.OpSend, 1, 2))
	silent := call(shm.OpSend, 0, 2)
	silent.Flags = shm.FlagSilent
	x.Submit(22, silent)
	x.Complete(30, done(0, 7, 100))
	x.Complete(35, done(1, 2, 0))
	x.Submit(50, call(shm.OpColl, 0, 0))
	x.Collective(coll.Barrier, 0)
	x.Complete(60, done(0, 0, 0))
	x.Complete(61, done(0, 0, 0)) // it matches no open call
	x.Leave(100)
	x.Leave(200)
	s := x.Summary(500)
	if s.Rank != 3 || s.Seconds != 100e-9 || s.InCalls != 35e-9 || s.Waiting != 30e-9 {
		t.Errorf("%+v", s)
	}
	if got, want := fmt.Sprint(s.Calls), "[{send 2 0} {receive 1 100} {barrier 1 0}]"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if len(s.Longest) != 2 || s.Longest[0].Call != "receive" || s.Longest[0].Peer != 7 || s.Longest[0].Seconds != 20e-9 || s.Longest[1].Call != "barrier" || s.Longest[1].Peer != -1 {
		t.Errorf("longest waits %+v", s.Longest)
	}
}

// TestInlineBytes checks that the payload of an inline completion is not read as a length.
func TestInlineBytes(t *testing.T) {
	x := NewTimes(0, 0, nil)
	x.Submit(1, call(shm.OpRecv, 0, 1))
	d := &shm.Descriptor{Op: shm.OpDone, Peer: 1}
	d.SetInline([]byte("sixteen or more bytes"))
	x.Complete(2, d)
	if s := x.Summary(3); len(s.Calls) != 1 || s.Calls[0].Bytes != 21 {
		t.Errorf("%+v", s.Calls)
	}
}

// TestCutOff checks that calls that are open when the rank leaves end then.
func TestCutOff(t *testing.T) {
	x := NewTimes(0, 0, nil)
	x.Submit(10, call(shm.OpRecv, 5, 1))
	if s := x.Summary(40); s.InCalls != 30e-9 || s.Waiting != 30e-9 || len(s.Longest) != 0 {
		t.Errorf("while it is open: %+v", s)
	}
	x.Leave(50)
	if s := x.Summary(90); s.InCalls != 40e-9 || s.Waiting != 40e-9 || len(s.Longest) != 1 {
		t.Errorf("afterwards: %+v", s)
	}
}

// TestLies checks that a client that uses a request number twice, or an invalid one, does
// no harm.
func TestLies(t *testing.T) {
	x := NewTimes(0, 0, NewRecorder(4))
	x.Submit(1, call(shm.OpRecv, 0, 1))
	x.Submit(2, call(shm.OpRecv, 0, 1))
	x.Submit(3, call(shm.OpRecv, 1<<31, 1))
	x.Submit(4, call(200, 0, 1))
	x.Collective(200, 0)
	x.Complete(5, done(1<<31, 0, 0))
	x.Complete(9, done(0, 1, 0))
	if s := x.Summary(10); s.InCalls != 8e-9 {
		t.Errorf("%+v", s)
	}
}

// TestSumsAgree checks for random calls that the timeline and the summary have the same
// times.
func TestSumsAgree(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	r := NewRecorder(1 << 16)
	x := NewTimes(0, 0, r)
	now, busy := int64(0), map[uint32]bool{}
	for range 5000 {
		now += rng.Int64N(1000)
		req := rng.Uint32N(8)
		if busy[req] {
			x.Complete(now, done(req, 1, 8))
		} else {
			d := call([]shm.Op{shm.OpRecv, shm.OpSend, shm.OpPut, shm.OpColl}[rng.IntN(4)], req, 1)
			x.Submit(now, d)
			if d.Op == shm.OpColl {
				x.Collective(coll.Allreduce, 8)
			}
		}
		busy[req] = !busy[req]
	}
	x.Leave(now)
	f := Merge([]*File{fileOf(t, r, 0, 0)})
	if err := f.Check(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	in, waiting := f.Sums(0)
	s := x.Summary(now)
	if math.Abs(in-s.InCalls) > 1e-9 || math.Abs(waiting-s.Waiting) > 1e-9 {
		t.Errorf("seed %d: timeline %v and %v, summary %v and %v", seed, in, waiting, s.InCalls, s.Waiting)
	}
}

// TestNothingIsAllocated checks that, with and without a recorder, a call allocates nothing
// after the first use of its request number.
func TestNothingIsAllocated(t *testing.T) {
	for what, r := range map[string]*Recorder{"off": nil, "on": NewRecorder(16)} {
		x := NewTimes(0, 0, r)
		recv, send, end := call(shm.OpRecv, 3, 1), call(shm.OpSend, 4, 1), done(3, 1, 8)
		end2 := done(4, 1, 8)
		h := &wire.Header{Type: wire.Eager, Seq: 1}
		step := func() {
			x.Submit(1, recv)
			x.Submit(2, send)
			x.Complete(3, end2)
			x.Complete(4, end)
			if r != nil {
				r.Sent(1, 0, true, h)
				r.Came(1, 0, true, h)
				r.Turn(1, 2, 3)
			}
		}
		step()
		if n := testing.AllocsPerRun(1000, step); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// TestOldestAreDropped checks that memory is bounded, that the newest events stay, and that
// the others are counted.
func TestOldestAreDropped(t *testing.T) {
	r := NewRecorder(10)
	for i := range int64(25) {
		r.Turn(i, i+1, 1)
	}
	p := partOf(r)
	if len(p.events) != 10 || p.Lost != 15 || p.events[0].Since != 15 || p.events[9].Since != 24 {
		t.Errorf("%d events from %d, %d lost", len(p.events), p.events[0].Since, p.Lost)
	}
}

// partOf copies a recorder at once.
func partOf(r *Recorder) *Part {
	c, events := r.Copy()
	c.Some(events)
	return c.Part()
}

// TestCopiedInPieces checks a copy during which events are recorded: it has the events kept
// at its beginning, in order, except for those replaced by newer ones meanwhile, which are
// counted.
func TestCopiedInPieces(t *testing.T) {
	for _, between := range []int64{0, 1, 7, 100} {
		r, n := NewRecorder(50), int64(0)
		record := func(k int64) {
			for range k {
				r.Turn(n, n+1, 1)
				n++
			}
		}
		record(70)
		c, events := r.Copy()
		c.Reserve(events)
		if events != 50 || testing.AllocsPerRun(1, func() { c.Some(0) }) != 0 {
			t.Fatalf("%d events, want 50; copying allocates", events)
		}
		for c.Some(10) {
			record(between)
		}
		p, last := c.Part(), int64(19)
		for _, e := range p.events {
			if e.Since <= last || e.Since >= 70 {
				t.Fatalf("event %d comes after %d", e.Since, last)
			}
			last = e.Since
		}
		if between <= 1 && (len(p.events) < 45 || last != 69) || between == 0 && p.Lost != 20 {
			t.Errorf("%d between pieces: %d events up to %d, %d lost", between, len(p.events), last, p.Lost)
		}
	}
}

// TestArrows checks that the two ends of a frame, in two pods whose engines began at
// different times, make one arrow; that a frame received twice has one; and that one whose
// other end was not kept has none.
func TestArrows(t *testing.T) {
	a, b := NewRecorder(10), NewRecorder(10)
	h := &wire.Header{Type: wire.Eager, Seq: 7, Src: 0, Dst: 1, Length: 8, Tag: 5}
	a.Sent(1000, 1, false, h)
	a.Sent(1500, 1, false, &wire.Header{Type: wire.Eager, Seq: 8, Src: 0, Dst: 1})
	a.Sent(1600, 1, false, &wire.Header{Type: wire.Heartbeat})
	b.Came(200, 0, false, h)
	b.Came(300, 0, false, h)
	f := Merge([]*File{fileOf(t, a, 0, 50_000), fileOf(t, b, 1, 60_000)})
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	var arrows []string
	for _, e := range f.Events {
		if e.ID != "" {
			arrows = append(arrows, fmt.Sprintf("%s %s %d %v", e.Phase, e.ID, e.Pid, e.Time))
		}
	}
	if got, want := strings.Join(arrows, "; "), "s 0>1.7 0 1; f 0>1.7 1 10.2"; got != want {
		t.Errorf("arrows %s, want %s", got, want)
	}
	raw, err := json.Marshal(f)
	if err != nil || !strings.Contains(string(raw), `"link":"tcp"`) {
		t.Errorf("%v %s", err, raw)
	}
}

// TestCheckFindsFaults checks that Check finds the faults of a timeline.
func TestCheckFindsFaults(t *testing.T) {
	d, long := 5.0, 50.0
	for want, events := range map[string][]ChromeEvent{
		"partly inside":    {{Name: "a", Phase: "X", Time: 1, Dur: &d}, {Name: "b", Phase: "X", Time: 3, Dur: &long}},
		"no duration":      {{Name: "a", Phase: "X", Time: 1}},
		"unknown phase":    {{Name: "a", Phase: "?", Time: 1}},
		"has no name":      {{Phase: "X", Time: 1, Dur: &d}},
		"arrow x has no":   {{Name: "a", Phase: "s", ID: "x", Time: 1}, {Name: "a", Phase: "X", Time: 1, Dur: &d}},
		"begins in no":     {{Name: "a", Phase: "s", ID: "x", Time: 1}, {Name: "a", Phase: "f", Bind: "e", ID: "x", Time: 1}},
		"before the first": {{Name: "a", Phase: "X", Time: -1, Dur: &d}},
	} {
		if err := (&File{Events: events}).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// fileOf returns the timeline that a recorder's pod writes.
func fileOf(t *testing.T, r *Recorder, pod int, epoch int64) *File {
	t.Helper()
	var b bytes.Buffer
	n, err := (&Timeline{Part: partOf(r), Pod: pod, Transport: "tcp", Epoch: epoch}).WriteTo(&b)
	f := new(File)
	if err == nil {
		err = json.Unmarshal(b.Bytes(), f)
	}
	if err != nil || n <= 0 {
		t.Fatalf("%d bytes: %v\n%.2000s", n, err, b.Bytes())
	}
	return f
}
