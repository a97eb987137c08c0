package bench

import "slices"

// Median returns the middle value, the upper one of two, as mpibench.c does. v is not
// empty, and is not changed.
func Median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

// Repeat runs a measurement Repetitions times.
func Repeat(run func() (float64, error)) ([]float64, error) {
	var all []float64
	for range Repetitions {
		v, err := run()
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Samples are one repetition of overlap, in microseconds: of a message alone, of
// computing alone, and of both.
type Samples struct{ Transfer, Compute, Total []float64 }

// OverlapFigure makes one figure of the repetitions. The overlap of a repetition is
// 1 - (total - compute) / transfer, of its medians; the figure has the medians of the
// repetitions.
func OverlapFigure(bytes int, repetitions []Samples) Figure {
	var ratio, transfer, compute, total []float64
	for _, r := range repetitions {
		t, c, both := Median(r.Transfer), Median(r.Compute), Median(r.Total)
		ratio = append(ratio, 1-(both-c)/t)
		transfer, compute, total = append(transfer, t), append(compute, c), append(total, both)
	}
	o := Median(ratio)
	return Figure{
		Test: Overlap, Bytes: bytes, Overlap: &o,
		TransferUS: Median(transfer), ComputeUS: Median(compute), TotalUS: Median(total),
	}
}
