package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// at returns the series of a size.
func at(t *testing.T, all []Series, bytes int) Series {
	t.Helper()
	for _, s := range all {
		if s.Bytes == bytes {
			return s
		}
	}
	t.Fatalf("no series of %d bytes", bytes)
	return Series{}
}

// TestMethodIsThatOfThePeers compares the numbers with those in the header of
// hack/bench/mpibench.c.
func TestMethodIsThatOfThePeers(t *testing.T) {
	var m Method
	latency, bandwidth := m.Latency(), m.Bandwidth()
	if first, last := latency[0].Bytes, latency[len(latency)-1].Bytes; first != 8 || last != 4*mib || len(latency) != 20 {
		t.Errorf("latency from %d to %d bytes in %d sizes", first, last, len(latency))
	}
	if first, last := bandwidth[0].Bytes, bandwidth[len(bandwidth)-1].Bytes; first != 64*kib || last != 4*mib || len(bandwidth) != 7 {
		t.Errorf("bandwidth from %d to %d bytes in %d sizes", first, last, len(bandwidth))
	}
	for bytes, count := range map[int]int{8: 10_000, kib: 10_000, 2 * kib: 1_000, 64 * kib: 1_000, 128 * kib: 100, 4 * mib: 100} {
		want := Series{Bytes: bytes, WarmUp: 100, Count: count, Window: 1}
		if diff := cmp.Diff(want, at(t, latency, bytes)); diff != "" {
			t.Errorf("latency (-want +got):\n%s", diff)
		}
	}
	for _, want := range []Series{
		{Bytes: mib, WarmUp: 1, Count: 20, Window: 64}, {Bytes: 2 * mib, WarmUp: 1, Count: 10, Window: 64}, {Bytes: 4 * mib, WarmUp: 1, Count: 10, Window: 16},
	} {
		if diff := cmp.Diff(want, at(t, bandwidth, want.Bytes)); diff != "" {
			t.Errorf("bandwidth (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(Series{Bytes: 8, WarmUp: 10, Count: 1000, Window: 64}, m.Rate()); diff != "" {
		t.Errorf("rate (-want +got):\n%s", diff)
	}
	if m.Triples() != 50 {
		t.Errorf("%d triples", m.Triples())
	}
}

func TestQuickMethodDoesEverythingAtLeastOnce(t *testing.T) {
	quick, full := Method{Quick: true}, Method{}
	if len(quick.Latency()) != len(full.Latency()) || len(quick.Bandwidth()) != len(full.Bandwidth()) || len(quick.Calls(Operations, 4)) != len(full.Calls(Operations, 4)) {
		t.Error("the quick method leaves sizes out")
	}
	for i, s := range append(append(quick.Latency(), quick.Bandwidth()...), quick.Rate()) {
		if s.Count < 1 || s.WarmUp < 1 {
			t.Errorf("series %d: %+v", i, s)
		}
	}
	for _, c := range quick.Calls(Operations, 4) {
		if c.Count < 1 || c.WarmUp < 1 {
			t.Errorf("%+v", c)
		}
	}
}

func TestCollectivesFitTheArena(t *testing.T) {
	for _, ranks := range []int{2, 4, 32, 64, 1000, 4096} {
		calls := Method{}.Calls(Operations, ranks)
		largest := 0
		for _, c := range calls {
			largest = max(largest, c.Bytes)
			if c.Bytes%8 != 0 {
				t.Errorf("%d bytes are no whole elements", c.Bytes)
			}
		}
		if largest != CollectiveBytesMax(ranks) || largest < 8 || largest*ranks > collectiveSpace {
			t.Errorf("%d ranks: largest vector %d bytes, bound %d", ranks, largest, CollectiveBytesMax(ranks))
		}
	}
}

func TestSelect(t *testing.T) {
	got, err := Select([]string{Collectives, Rate, Latency, Rate})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{Latency, Rate, Collectives}, got); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	for _, wrong := range [][]string{{"altitude"}, {Latency, ""}, {}} {
		if got, err := Select(wrong); err == nil {
			t.Errorf("%q: %v, want an error", wrong, got)
		}
	}
}
