package match

import (
	"fmt"
	"testing"
)

// deep returns a queue with depth patterns and as many messages that the
// operations under test never match: a quarter of each in every plain class,
// half of them with one key, so that both many bins and a long bin are there.
func deep(depth int) *Queue {
	q := New()
	for i := range depth {
		e := Envelope{Context: 7, Source: 1, Tag: 1}
		if i%2 == 0 {
			e.Tag, e.Source = uint64(i), uint32(i)
		}
		p := Pattern{Context: 7, Source: e.Source, Tag: e.Tag}
		if i%4 >= 2 {
			p.Source = AnySource
		}
		if i%8 >= 4 {
			p.Ignore = ^uint64(0)
		}
		q.Post(p, uint32(i))
		q.Park(e, uint32(i))
	}
	return q
}

// plain are the four kinds of receive of an MPI program, in a context that
// deep does not use.
var plain = []Pattern{
	{Context: 3, Source: 5, Tag: 9},
	{Context: 3, Source: 5, Ignore: ^uint64(0)},
	{Context: 3, Source: AnySource, Tag: 9},
	{Context: 3, Source: AnySource, Ignore: ^uint64(0)},
}

var depths = []int{10, 10_000}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, depth := range depths {
		q := deep(depth)
		round := func() {
			for _, p := range plain {
				e := Envelope{Context: 3, Source: 5, Tag: 9}
				q.Post(p, 1)
				if _, ok := q.Arrive(e); !ok {
					t.Fatal("Arrive found no pattern")
				}
				q.Cancel(q.Post(p, 1))
				q.Park(e, 1)
				if _, ok := q.Peek(p); !ok {
					t.Fatal("Peek found no message")
				}
				if _, ok := q.Take(p); !ok {
					t.Fatal("Take found no message")
				}
				q.Drop(q.Park(e, 1))
			}
		}
		round() // the first use of a class makes it
		if n := testing.AllocsPerRun(200, round); n != 0 {
			t.Errorf("depth %d: %v allocations a round, want 0", depth, n)
		}
	}
}

// BenchmarkArrive measures one posted pattern and the message for it.
func BenchmarkArrive(b *testing.B) {
	for _, depth := range depths {
		b.Run(fmt.Sprintf("posted=%d", depth), func(b *testing.B) {
			q := deep(depth)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.Post(plain[i&3], 1)
				q.Arrive(Envelope{Context: 3, Source: 5, Tag: 9})
			}
		})
	}
}

// BenchmarkArriveExact measures the same with exact patterns alone posted.
func BenchmarkArriveExact(b *testing.B) {
	for _, depth := range depths {
		b.Run(fmt.Sprintf("posted=%d", depth), func(b *testing.B) {
			q := New()
			for i := range depth {
				q.Post(Pattern{Context: 1, Source: uint32(i), Tag: uint64(i)}, 1)
			}
			for b.Loop() {
				q.Post(plain[0], 1)
				q.Arrive(Envelope{Context: 3, Source: 5, Tag: 9})
			}
		})
	}
}

// BenchmarkTake measures one parked message and the receive for it.
func BenchmarkTake(b *testing.B) {
	for _, depth := range depths {
		b.Run(fmt.Sprintf("parked=%d", depth), func(b *testing.B) {
			q := deep(depth)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.Park(Envelope{Context: 3, Source: 5, Tag: 9}, 1)
				q.Take(plain[i&3])
			}
		})
	}
}

// BenchmarkCancel measures a post and its cancel.
func BenchmarkCancel(b *testing.B) {
	for _, depth := range depths {
		b.Run(fmt.Sprintf("posted=%d", depth), func(b *testing.B) {
			q := deep(depth)
			for i := 0; b.Loop(); i++ {
				q.Cancel(q.Post(plain[i&3], 1))
			}
		})
	}
}

// TestMasksAreBounded checks that of patterns with more masks than there are classes, which
// are compared with every message, a bounded number may wait, and that searches among parked
// messages are counted.
func TestMasksAreBounded(t *testing.T) {
	q := New()
	of := func(mask int) Pattern { return Pattern{Source: 1, Tag: 1 << 40, Ignore: 1 << mask} }
	for mask := range maxClasses {
		q.Post(of(mask), 0)
	}
	first := q.Post(of(maxClasses), 0)
	posted := 1
	for ; !q.Full(of(maxClasses + posted%3)); posted++ {
		q.Post(of(maxClasses+posted%3), 0)
	}
	if posted != overflowMax {
		t.Errorf("%d patterns of further masks have a place, want %d", posted, overflowMax)
	}
	if q.Full(of(0)) {
		t.Error("a pattern of a mask with a class has none")
	}
	if q.Cancel(first); q.Full(of(maxClasses)) {
		t.Error("there is no place where one was given back")
	}
	const parked = 1000
	for range parked {
		q.Park(Envelope{Source: 2}, 0)
	}
	for mask := range 2 * maxClasses {
		q.Peek(of(mask))
		if n := q.Steps(); n != parked {
			t.Errorf("the search of mask %d took %d steps, want %d", mask, n, parked)
		}
	}
	if q.Peek(of(0)); q.Steps() != 0 {
		t.Error("a search by a class is counted")
	}
}
