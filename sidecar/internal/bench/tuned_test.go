package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tuned returns a size with the times of two algorithms in three turns.
func tuned(op string, bytes int, binomial, linear []float64) Tuned {
	t := Tuned{Op: op, Bytes: bytes, Builtin: "binomial"}
	for i := range binomial {
		t.Add("binomial", binomial[i])
		t.Add("linear", linear[i])
	}
	return t
}

// TestBest: the built-in algorithm is kept unless another one has a median that is shorter by more
// than 5 %, and is the slower one in at most one of five turns.
func TestBest(t *testing.T) {
	for _, c := range []struct {
		binomial, linear []float64
		want             string
	}{
		{[]float64{10, 10, 10}, []float64{9, 9, 9}, "linear"},
		{[]float64{10, 10, 10}, []float64{9.6, 9.6, 9.6}, "binomial"},
		{[]float64{10, 10, 10}, []float64{5, 10, 10}, "binomial"}, // one turn is noise
		{[]float64{10, 20, 40}, []float64{9, 18, 36}, "linear"},   // other load slows both
		{[]float64{10, 20, 11}, []float64{9, 9, 12}, "binomial"},  // no clear gain
		{[]float64{10, 10, 10, 10, 10}, []float64{8, 8, 8, 8, 30}, "linear"},
		{[]float64{10, 10, 10, 10, 10}, []float64{8, 8, 8, 30, 30}, "binomial"},
		{[]float64{10}, []float64{9}, "linear"},
		{[]float64{9, 9, 9}, []float64{10, 10, 10}, "binomial"},
	} {
		x := tuned("gather", 8, c.binomial, c.linear)
		if got := x.Best(); got != c.want {
			t.Errorf("%v against %v: %s, want %s", c.binomial, c.linear, got, c.want)
		}
	}
}

// TestWriteTable: sizes with one best algorithm share a rule, behind their times. It reaches up to
// twice the largest of them, if a larger size follows.
func TestWriteTable(t *testing.T) {
	slow, fast := []float64{10, 10, 10}, []float64{4, 4, 4}
	var b strings.Builder
	err := WriteTable(&b, &Shape{Ranks: 3, Pods: 2, On: "transport node, on here"}, []Tuned{
		tuned("barrier", 0, fast, slow),
		tuned("gather", 8, fast, slow), tuned("gather", 64, fast, slow), tuned("gather", 512, slow, fast),
		tuned("reduce-scatter", 4096, slow, fast),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `# Algorithms of collectives for 3 ranks in 2 pods, measured by outrigger bench collectives --tune
# (transport node, on here). Behind each size are the medians of the times.
apiVersion: outrigger.dev/v1alpha1
kind: FabricProfile
metadata:
  name: tuned-3-ranks-2-pods
spec:
  collectives:
  # Barrier
  # Binomial 4.0 us, Linear 10.0 us
  - {collective: Barrier, ranks: 3, pods: 2, algorithm: Binomial}
  # Gather
  # 8 B: Binomial 4.0 us, Linear 10.0 us
  # 64 B: Binomial 4.0 us, Linear 10.0 us
  - {collective: Gather, ranks: 3, pods: 2, maxBytes: 128, algorithm: Binomial}
  # 512 B: Linear 4.0 us, Binomial 10.0 us
  - {collective: Gather, ranks: 3, pods: 2, maxBytes: 512, algorithm: Linear}
  # ReduceScatter
  # 4 KiB: Linear 4.0 us, Binomial 10.0 us
  - {collective: ReduceScatter, ranks: 3, pods: 2, maxBytes: 12288, algorithm: Linear}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if err := WriteTable(full{}, &Shape{}, nil); !errors.Is(err, errFull) {
		t.Errorf("a table that cannot be written: %v", err)
	}
}

var errFull = errors.New("the disk is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
