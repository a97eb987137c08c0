// Package bench has the parts of the benchmark that exchange no messages: the sizes
// and repetitions of each test, the statistics of the samples, and the tables and
// plots of the figures. The method is that of hack/bench/mpibench.c, so that a ratio
// of the two is a ratio of systems and not of programs. The ranks that exchange the
// messages are in cmd/outrigger, which imports the client library.
package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Figure is one line of a measurement. hack/bench/compare reads its JSON form, in
// which fields that a test does not have are omitted.
type Figure struct {
	Peer       string   `json:"peer"`
	Test       string   `json:"test"`
	Op         string   `json:"op,omitempty"` // the collective; of fairness: the load; of tests with variants: the experiment
	Variant    string   `json:"variant,omitempty"`
	Ranks      int      `json:"ranks,omitempty"` // number of ranks of a collective
	Bytes      int      `json:"bytes"`
	Side       string   `json:"side,omitempty"` // the side that computes in an overlap figure, isend or irecv
	Mode       string   `json:"mode,omitempty"` // whether one rank computes in an overlap figure, or both
	US         float64  `json:"us,omitempty"`
	USMin      float64  `json:"us_min,omitempty"`
	P50        float64  `json:"p50_us,omitempty"`  // median of the round trips of a fairness figure
	P999       float64  `json:"p999_us,omitempty"` // the 99.9th percentile
	MaxUS      float64  `json:"max_us,omitempty"`
	Trips      int      `json:"trips,omitempty"`
	MBs        float64  `json:"mb_s,omitempty"`
	MsgS       float64  `json:"msg_s,omitempty"`
	Overlap    *float64 `json:"overlap,omitempty"` // 0 is a figure too
	TransferUS float64  `json:"transfer_us,omitempty"`
	ComputeUS  float64  `json:"compute_us,omitempty"`
	TotalUS    float64  `json:"total_us,omitempty"`
}

// Write prints the figure as one line of JSON, rounded to three decimals, and MsgS to an
// integer.
func (f Figure) Write(w io.Writer) error {
	for _, v := range []*float64{&f.US, &f.USMin, &f.P50, &f.P999, &f.MaxUS, &f.MBs, &f.TransferUS, &f.ComputeUS, &f.TotalUS} {
		*v = round(*v)
	}
	f.MsgS = math.Round(f.MsgS)
	if f.Overlap != nil {
		o := round(*f.Overlap)
		f.Overlap = &o
	}
	line, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("figure of %s: %w", f.Test, err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// Read reads figures until the end of r, and calls see with each. A line that is not a
// figure is an error, since it would otherwise be lost silently.
func Read(r io.Reader, see func(Figure) error) ([]Figure, error) {
	var all []Figure
	in := bufio.NewScanner(r)
	for in.Scan() {
		var f Figure
		if err := json.Unmarshal(in.Bytes(), &f); err != nil {
			return all, fmt.Errorf("%q is no figure: %w", in.Text(), err)
		}
		all = append(all, f)
		if err := see(f); err != nil {
			return all, err
		}
	}
	return all, in.Err()
}

// What names the measurement of the figure, for a progress line.
func (f Figure) What() string {
	text := f.Test
	if f.Op != "" {
		text += " " + f.Op
	}
	if f.Variant != "" {
		text += ", " + f.Variant + ","
	}
	if f.Bytes > 0 {
		text += " " + Size(f.Bytes)
	}
	if f.Side != "" {
		text += " " + f.Side + " " + f.Mode
	}
	return text
}

// Size formats a message size of a test, which is a multiple of its unit.
func Size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
