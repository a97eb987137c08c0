package match

import "testing"

func TestStaleRefsAreRefused(t *testing.T) {
	q := New()
	p := Pattern{Source: 1, Tag: 2}
	e := Envelope{Source: 1, Tag: 2}

	if q.Cancel(Ref{}) || q.Cancel(Ref{index: 0, generation: 1}) {
		t.Fatal("a Ref was accepted by a Queue that gave out none")
	}
	posted := q.Post(p, 10)
	parked := q.Park(e, 20)
	if q.Cancel(parked) || q.Drop(posted) {
		t.Fatal("a Ref was accepted on the wrong side")
	}
	if q.Cancel(Ref{}) || q.Drop(Ref{}) || q.Cancel(Ref{index: 1 << 31, generation: 1}) || q.Cancel(Ref{index: 1, generation: 1}) {
		t.Fatal("a Ref that was never given out was accepted")
	}
	if h, ok := q.Arrive(e); !ok || h != 10 {
		t.Fatalf("Arrive = %d, %t; want 10, true", h, ok)
	}
	again := q.Post(p, 11) // takes the slot of the first
	if again.index != posted.index {
		t.Fatalf("slot %d was not used again, got %d", posted.index, again.index)
	}
	if q.Cancel(posted) {
		t.Fatal("the Ref of a matched pattern cancelled its successor")
	}
	if !q.Cancel(again) || q.Cancel(again) || !q.Drop(parked) || q.Drop(parked) {
		t.Fatal("a live Ref was refused, or accepted twice")
	}
}

// TestGenerationWraps checks that a slot's generation can wrap around without becoming that of
// the zero Ref.
func TestGenerationWraps(t *testing.T) {
	q := New()
	q.Drop(q.Park(Envelope{}, 1))
	slot := q.parked.free
	q.parked.entries[slot].generation = ^uint32(0) - 1
	last := q.Park(Envelope{}, 2)
	if !q.Drop(last) {
		t.Fatal("the last generation before the wrap was refused")
	}
	if r := q.Park(Envelope{}, 3); r.generation != 2 || q.Drop(last) || !q.Drop(r) {
		t.Fatalf("after the wrap: generation %d, want 2 and only its own Ref accepted", r.generation)
	}
}

// TestTablesFollowLiveKeys checks that tables have the size of the live keys: a million keys
// one after the other, as of a tag that counts messages, do not grow them.
func TestTablesFollowLiveKeys(t *testing.T) {
	q := New()
	for i := range uint64(100_000) {
		q.Post(Pattern{Source: 1, Tag: i}, 0)
		if _, ok := q.Arrive(Envelope{Source: 1, Tag: i}); !ok {
			t.Fatalf("tag %d was not matched", i)
		}
	}
	if n := len(q.posted.classes[0].table.bins); n != minBuckets {
		t.Fatalf("table has %d bins after one live key at a time, want %d", n, minBuckets)
	}
}

// TestHashSpreads checks that the longest chain of a bucket is short for the keys that HPC
// programs use: counting tags, counting sources, tags in the high bits.
func TestHashSpreads(t *testing.T) {
	keys := map[string]func(i int) Envelope{
		"tags":      func(i int) Envelope { return Envelope{Tag: uint64(i)} },
		"sources":   func(i int) Envelope { return Envelope{Source: uint32(i)} },
		"contexts":  func(i int) Envelope { return Envelope{Context: uint32(i)} },
		"high tags": func(i int) Envelope { return Envelope{Tag: uint64(i) << 48} },
		"grid":      func(i int) Envelope { return Envelope{Source: uint32(i % 100), Tag: uint64(i / 100)} },
	}
	for name, key := range keys {
		for seed := range uint64(8) {
			var table table
			s := newSeeds(seed)
			for i := range 10_000 {
				table.obtain(s, key(i))
			}
			if n := longestChain(&table); n > 16 {
				t.Errorf("%s, seed %d: a bucket has %d bins, want at most 16", name, seed, n)
			}
		}
	}
}

func longestChain(t *table) int {
	longest := 0
	for _, b := range t.buckets {
		n := 0
		for ; b != none; b = t.bins[b].next {
			n++
		}
		longest = max(longest, n)
	}
	return longest
}
