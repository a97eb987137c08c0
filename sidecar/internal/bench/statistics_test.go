package bench

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	v := []float64{3, 1, 2}
	if got := Median(v); got != 2 {
		t.Errorf("median of three: %g", got)
	}
	if diff := cmp.Diff([]float64{3, 1, 2}, v); diff != "" {
		t.Errorf("the samples were changed:\n%s", diff)
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 3 {
		t.Errorf("median of four: %g, want the upper of the middle two", got)
	}
}

func TestRepeatStopsAtAnError(t *testing.T) {
	broken, calls := errors.New("broken"), 0
	if _, err := Repeat(func() (float64, error) { calls++; return 0, broken }); !errors.Is(err, broken) || calls != 1 {
		t.Errorf("error %v after %d calls", err, calls)
	}
	all, err := Repeat(func() (float64, error) { calls++; return float64(calls), nil })
	if err != nil || len(all) != Repetitions {
		t.Errorf("%d repetitions, error %v", len(all), err)
	}
}

// TestOverlapIsWhatComputingHides: a transfer of 100 us runs during a computation of 150 us.
// The part of the total beyond the computation was not hidden.
func TestOverlapIsWhatComputingHides(t *testing.T) {
	sample := func(total float64) Samples {
		return Samples{Transfer: []float64{100, 90, 900}, Compute: []float64{150, 150, 150}, Total: []float64{total, 1, 9999}}
	}
	for total, want := range map[float64]float64{150: 1, 250: 0, 175: 0.75, 260: -0.1} {
		f := OverlapFigure(mib, []Samples{sample(total), sample(150), sample(total), sample(9000), sample(total)})
		if got := *f.Overlap; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("total %g us: overlap %g, want %g", total, got, want)
		}
		if f.TransferUS != 100 || f.ComputeUS != 150 || f.TotalUS != total || f.Test != Overlap || f.Bytes != mib {
			t.Errorf("total %g us: %+v", total, f)
		}
	}
}
