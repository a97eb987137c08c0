package bench

import "slices"

// Median is the middle value, the upper of two, as mpibench.c takes it; v is
// not empty and stays as it is.
func Median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

// Repeat makes the repetitions of a measurement.
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

// Samples are one repetition of overlap in microseconds: a message alone,
// computing alone, and both.
type Samples struct{ Transfer, Compute, Total []float64 }

// OverlapFigure makes one figure of the repetitions:
// overlap = 1 - (total - compute) / transfer, of the medians of a repetition,
// and then the medians of the repetitions.
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
