package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

// OffloadRow is what one copy engine needs for copies of one size.
type OffloadRow struct {
	Engine string  `json:"engine"`
	Bytes  int     `json:"bytes"`
	Cached bool    `json:"cached"`      // the copies are between the same buffers, again and again
	GBps   float64 `json:"gbps"`        // bytes by the time to the last byte
	Own    float64 `json:"usPerMiB"`    // time of the calling thread for submission and productive polls, for a MiB
	Share  float64 `json:"ownPercent"`  // that time by the time of a copy of the calling thread
	Last   float64 `json:"lastPercent"` // the time to the last byte by that of a copy of the calling thread
}

// OffloadEngine is a copy engine to measure.
type OffloadEngine struct {
	Name string
	Open func() (copyeng.Channel, error)
}

// OffloadResult is the measurement of one engine.
type OffloadResult struct {
	Engine    string       `json:"engine"`
	Threshold uint64       `json:"threshold"`       // the sidecar would use the engine from this size on; 0: not
	Error     string       `json:"error,omitempty"` // why the engine was not measured
	Rows      []OffloadRow `json:"rows,omitempty"`
}

var offloadSizes = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// coldBytes is the memory from which copies of memory that is in no cache are made.
const coldBytes = 256 << 20

// Offload measures an engine, each size together with copies of the calling thread.
func Offload(e OffloadEngine, rounds int) OffloadResult {
	r := OffloadResult{Engine: e.Name}
	ch, err := e.Open()
	if err == nil {
		r.Rows, err = offloadRows(ch, rounds)
		if err == nil {
			m := copyeng.Measure(ch)
			r.Threshold, r.Error = m.Threshold, m.Cause
		}
		if closed := ch.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		r.Threshold, r.Error = 0, err.Error()
	}
	return r
}

func offloadRows(ch copyeng.Channel, rounds int) (rows []OffloadRow, err error) {
	src, dst := make([]byte, coldBytes), make([]byte, coldBytes)
	for i := range src { // pages that were never written share one
		src[i], dst[i] = byte(i*7), 1
	}
	for _, cached := range []bool{true, false} {
		for _, n := range offloadSizes {
			row, err := offloadRow(ch, dst, src, n, cached, rounds)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func offloadRow(ch copyeng.Channel, dst, src []byte, n int, cached bool, rounds int) (OffloadRow, error) {
	var inline, own, last []time.Duration
	cpu := new(copyeng.CPU)
	for i := range rounds {
		at := 0
		if !cached {
			at = i * 2 * n % (len(src) - 2*n)
		}
		_, x, err := copyeng.Time(cpu, dst[at:at+n], src[at:at+n])
		if err != nil {
			return OffloadRow{}, err
		}
		if !cached {
			at += n
		}
		o, l, err := copyeng.Time(ch, dst[at:at+n], src[at:at+n])
		if err != nil {
			return OffloadRow{}, err
		}
		inline, own, last = append(inline, x), append(own, o), append(last, l)
	}
	x, o, l := middle(inline), middle(own), middle(last)
	return OffloadRow{
		Engine: ch.Name(), Bytes: n, Cached: cached, GBps: float64(n) / l, Own: o / 1e3 * (1 << 20) / float64(n), Share: 100 * o / x, Last: 100 * l / x,
	}, nil
}

// middle returns the median in nanoseconds.
func middle(list []time.Duration) float64 {
	slices.Sort(list)
	return float64(max(list[len(list)/2], 1))
}

// ShowOffload prints the measurements of an engine.
func ShowOffload(w io.Writer, r OffloadResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "%s\tsize\tmemory\tGB/s\tus/MiB of the engine's thread\tof an own copy\tlast byte\t\n", r.Engine) // Flush returns write errors
	for _, x := range r.Rows {
		memory := "cached"
		if !x.Cached {
			memory = "uncached"
		}
		_, _ = fmt.Fprintf(t, "\t%d KiB\t%s\t%.1f\t%.1f\t%.0f %%\t%.0f %%\t\n", x.Bytes>>10, memory, x.GBps, x.Own, x.Share, x.Last)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := fmt.Sprintf("%s: a sidecar uses it from %d KiB on", r.Engine, r.Threshold>>10)
	switch {
	case r.Error != "":
		verdict = fmt.Sprintf("%s: not used: %s", r.Engine, r.Error)
	case r.Threshold == 0:
		verdict = fmt.Sprintf("%s: not used: at no size from 64 KiB to 1 MiB on it leaves half of a copy's time to the engine's thread, with the last byte at most twice as late", r.Engine)
	}
	_, err := fmt.Fprintf(w, "%s\n\n", verdict)
	return err
}
