package ep

import (
	"math"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"
)

// naive draws the numbers of batches 0..n-1 from one continuous stream and
// tallies them without any of batch's shortcuts.
func naive(batches int) tally {
	var t tally
	s := randlc.New(randlc.SeedEP)
	for range batches << log2BatchPairs {
		u := 2*s.Next() - 1
		v := 2*s.Next() - 1
		square := math.Pow(u, 2) + math.Pow(v, 2)
		if square <= 1 {
			factor := math.Sqrt(-2 * math.Log(square) / square)
			t.x += u * factor
			t.y += v * factor
			t.count[int(math.Max(math.Abs(u*factor), math.Abs(v*factor)))]++
		}
	}
	return t
}

func TestBatchesContinueTheOneStream(t *testing.T) {
	const batches = 5
	want := naive(batches)
	var got tally
	for b := range uint64(batches) {
		got.batch(b)
	}
	if got != want {
		t.Errorf("batches give %+v, the continuous stream %+v", got, want)
	}
}

func TestBatchesMayRunInAnyOrder(t *testing.T) {
	var up, down tally
	for b := range uint64(4) {
		up.batch(b)
		down.batch(3 - b)
	}
	if up.count != down.count {
		t.Errorf("counts depend on the order: %v and %v", up.count, down.count)
	}
	if math.Abs(up.x-down.x) > 1e-9 || math.Abs(up.y-down.y) > 1e-9 {
		t.Errorf("sums depend on the order beyond rounding: %v and %v", up, down)
	}
}

// The polar method accepts the pairs in the unit circle, a share of pi/4.
func TestAcceptedShareIsAQuarterOfPi(t *testing.T) {
	const batches = 16
	var got tally
	for b := range uint64(batches) {
		got.batch(b)
	}
	sum := 0.0
	for _, c := range got.count {
		sum += c
	}
	if share := sum / (batches << log2BatchPairs); math.Abs(share-math.Pi/4) > 0.002 {
		t.Errorf("accepted share %v, want about %v", share, math.Pi/4)
	}
}

func TestClassesGrow(t *testing.T) {
	before := 0
	for _, c := range bench.Classes() {
		p, ok := problems[c]
		if !ok {
			t.Fatalf("no problem for class %s", c)
		}
		if p.numbers() <= before || p.batches()<<log2BatchPairs*2 != p.numbers() {
			t.Errorf("class %s: %d numbers in %d batches after a class of %d", c, p.numbers(), p.batches(), before)
		}
		before = p.numbers()
	}
}
