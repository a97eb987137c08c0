package bench

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseClass(t *testing.T) {
	for _, c := range Classes() {
		for _, s := range []string{c.String(), strings.ToLower(c.String())} {
			if got, err := ParseClass(s); err != nil || got != c {
				t.Errorf("ParseClass(%q) = %v, %v", s, got, err)
			}
		}
	}
	for _, s := range []string{"", "C", "SW", "1"} {
		if _, err := ParseClass(s); err == nil {
			t.Errorf("ParseClass(%q) found a class", s)
		}
	}
}

func TestLookupNamesTheClasses(t *testing.T) {
	if _, err := Lookup(map[Class]int{S: 1}, W); err == nil || !strings.Contains(err.Error(), "S, W, A or B") {
		t.Errorf("Lookup of a missing class: %v", err)
	}
}

func TestLog2Ranks(t *testing.T) {
	for want, ranks := range []int{1, 2, 4, 8, 16} {
		if got, err := Log2Ranks(ranks); err != nil || got != want {
			t.Errorf("Log2Ranks(%d) = %d, %v, want %d", ranks, got, err, want)
		}
	}
	for _, ranks := range []int{-2, 0, 3, 6, 12} {
		if _, err := Log2Ranks(ranks); !errors.Is(err, ErrRanks) {
			t.Errorf("Log2Ranks(%d): %v, want ErrRanks", ranks, err)
		}
	}
}

func TestBlocksTileTheRange(t *testing.T) {
	for n := range 40 {
		for parts := 1; parts < 12; parts++ {
			next, smallest, largest := 0, n, 0
			for i := range parts {
				lo, hi := Block(n, parts, i)
				if lo != next || hi < lo {
					t.Fatalf("Block(%d,%d,%d) = %d,%d after a block that ends at %d", n, parts, i, lo, hi, next)
				}
				next = hi
				smallest, largest = min(smallest, hi-lo), max(largest, hi-lo)
			}
			if next != n || largest-smallest > 1 {
				t.Fatalf("Block(%d,%d): ends at %d, sizes %d..%d", n, parts, next, smallest, largest)
			}
		}
	}
}

func TestCheckTolerance(t *testing.T) {
	for _, tc := range []struct {
		c    Check
		want bool
	}{
		{Check{Value: 1 + 1e-11, Reference: 1, Tolerance: 1e-10}, true},
		{Check{Value: 1 + 1e-9, Reference: 1, Tolerance: 1e-10}, false},
		{Check{Value: -2, Reference: -2}, true},
		{Check{Value: 2, Reference: -2, Tolerance: 1}, false},
		{Check{Value: 0, Reference: 0}, true},
		{Check{Value: 1, Reference: 0}, false},
		{Check{Value: math.NaN(), Reference: 1, Tolerance: 1}, false},
	} {
		if got := tc.c.Passed(); got != tc.want {
			t.Errorf("%+v passed = %v, want %v", tc.c, got, tc.want)
		}
	}
}

func TestVerifyNeedsEveryCheck(t *testing.T) {
	good, bad := Check{Value: 1, Reference: 1}, Check{Value: 1, Reference: 2}
	var r Result
	if r.Verify(); r.Verified {
		t.Error("a result without checks is verified")
	}
	if r.Verify(good, good); !r.Verified {
		t.Error("two good checks do not verify")
	}
	if r.Verify(good, bad); r.Verified {
		t.Error("a bad check verifies")
	}
}

func TestReportSaysVerdictAndRates(t *testing.T) {
	r := Result{Benchmark: "CG", Class: S, Size: "1400", Iterations: 15, Ranks: 4, Operation: "floating point"}
	r.Timing(8e6, 2)
	for _, tc := range []struct {
		value   float64
		verdict string
	}{{8.5, Successful}, {8.6, Failed}} {
		r.Verify(Check{Name: "zeta", Value: tc.value, Reference: 8.5, Tolerance: 1e-10})
		var b strings.Builder
		if err := WriteReport(&b, r); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(b.String(), "\n")
		if lines[0] != tc.verdict {
			t.Errorf("first line %q, want exactly %q", lines[0], tc.verdict)
		}
		for _, want := range []string{"Class           =                        S", "1400", "2.000", "4.00", "1.00", "8.50000000000000E+00"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("report lacks %q:\n%s", want, b.String())
			}
		}
	}
}
