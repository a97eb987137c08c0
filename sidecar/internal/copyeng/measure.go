package copyeng

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Measurements. A channel is worth its use from a size on if the engine's thread spends at
// most half of the time of a copy of its own on submission and on polling, and the last byte
// comes at most twice as late: on a processor that others use, it comes later than that.
// Both has to hold for memory that is in the caches of the calling thread, from an earlier copy,
// and for memory that is in none, where the processor can flush it: a message may have been
// written just now or long ago. The buffers, 2 MiB, are garbage after it. Larger ones would exceed
// what I/OAT may pin by default; a copy of 4 MiB is between those of 1 MiB of both kinds.
const (
	leastBytes = 64 << 10 // smallest transfer that may be offloaded
	pieceBytes = 64 << 10 // link.PieceMax, which this package does not import
	rounds     = 9
	rareShare  = 2 // reciprocal of the largest share of the engine
	lateMax    = 2 // largest ratio of the times to the last byte
	// measureMax bounds the measurement, which takes 10 ms if the channel has a processor.
	measureMax = 400 * time.Millisecond
)

// sizes are the sizes that are measured. The first one, which is never offloaded, shows what a
// submission costs.
var sizes = [...]uint64{4 << 10, 64 << 10, 256 << 10, 1 << 20}

// Measured is the result of the measurements.
type Measured struct {
	Threshold uint64 `json:"threshold,omitempty"` // 0: the channel is not used
	Cause     string `json:"cause,omitempty"`     // why it is not, if it could not be opened
	Rows      []Row  `json:"rows,omitempty"`
}

// Row has the times for one size, in nanoseconds.
type Row struct {
	Bytes  uint64 `json:"bytes"`
	Inline int64  `json:"inline"` // of a copy by the calling thread
	Engine int64  `json:"engine"` // of the calling thread for submission and polling
	Last   int64  `json:"last"`   // from the submission to the last byte
	// The same of memory that is in no cache; 0: not measured.
	ColdInline int64 `json:"coldInline,omitempty"`
	ColdEngine int64 `json:"coldEngine,omitempty"`
	ColdLast   int64 `json:"coldLast,omitempty"`
}

// wins reports whether the channel is worth its use for this size.
func (r *Row) wins() bool {
	return worth(r.Inline, r.Engine, r.Last) && (r.ColdInline == 0 || worth(r.ColdInline, r.ColdEngine, r.ColdLast))
}

func worth(inline, engine, last int64) bool {
	return engine*rareShare <= inline && last <= lateMax*inline
}

// threshold returns the smallest size that may be offloaded from which on the channel wins at all
// sizes, or 0.
func threshold(rows []Row) (n uint64) {
	for i := len(rows) - 1; i >= 0 && rows[i].Bytes >= leastBytes && rows[i].wins(); i-- {
		n = rows[i].Bytes
	}
	return n
}

// opened is what open has made.
type opened struct {
	lanes     []*Lane
	threshold uint64
	measured  Measured
}

// open opens the channels and measures the first one.
func (c *Copies) open() {
	o := new(opened)
	defer func() { c.opened.Store(o) }()
	lanes, err := c.cfg.Open(c.bell)
	if err == nil && c.cfg.Threshold == 0 {
		o.measured.Rows, err = measure(lanes[0].Channel)
		o.measured.Threshold = threshold(o.measured.Rows)
	} else {
		o.measured.Threshold = c.cfg.Threshold
	}
	if err == nil && o.measured.Threshold > 0 {
		o.lanes, o.threshold = lanes, o.measured.Threshold
		return
	}
	o.measured.Threshold = 0
	for _, l := range lanes {
		err = errors.Join(err, l.Channel.Close())
	}
	if err != nil {
		o.measured.Cause = err.Error()
	}
}

// errSlow means that the channel has no processor, most of the time.
var errSlow = fmt.Errorf("copies of %d MiB took longer than %v", measured>>20, measureMax)

// measured is the bytes that a channel copies.
const measured = 2 * rounds * (4 + 64 + 256 + 1024) << 10

// Measure measures a channel that is idle, as Copies does.
func Measure(ch Channel) Measured {
	rows, err := measure(ch)
	m := Measured{Threshold: threshold(rows), Rows: rows}
	if err != nil {
		m.Threshold, m.Cause = 0, err.Error()
	}
	return m
}

// measure measures a channel that is idle.
func measure(ch Channel) (_ []Row, err error) {
	most := sizes[len(sizes)-1]
	dst, src := make([]byte, most), make([]byte, most)
	for i := range src {
		src[i] = byte(i * 7)
	}
	if m, maps := ch.(Mapper); maps {
		for _, mem := range [][]byte{dst, src} {
			if err := m.Map(mem); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, m.Unmap(mem)) }()
		}
	}
	rows, begun := make([]Row, 0, len(sizes)), time.Now()
	for _, n := range sizes {
		r := Row{Bytes: n}
		if r.Inline, r.Engine, r.Last, err = compare(ch, dst[:n], src[:n], false, begun); err == nil && flushes {
			r.ColdInline, r.ColdEngine, r.ColdLast, err = compare(ch, dst[:n], src[:n], true, begun)
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// compare returns the medians of the times of copies by the calling thread, and by a channel.
// begun is when the measurement of all sizes began.
func compare(ch Channel, dst, src []byte, cold bool, begun time.Time) (inline, engine, last int64, err error) {
	flush := func() {
		if cold {
			flushLines(dst)
			flushLines(src)
		}
	}
	var inlines, engines, lasts []int64
	for range rounds {
		if time.Since(begun) > measureMax {
			return 0, 0, 0, errSlow
		}
		flush()
		_, x, err := timeCopy(new(CPU), dst, src)
		if err != nil {
			return 0, 0, 0, err
		}
		flush()
		e, l, err := timeCopy(ch, dst, src)
		if err != nil {
			return 0, 0, 0, err
		}
		inlines, engines, lasts = append(inlines, x), append(engines, e), append(lasts, l)
	}
	return median(inlines), median(engines), median(lasts), nil
}

func median(list []int64) int64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// Time copies in pieces, and returns what timeCopy does.
func Time(ch Channel, dst, src []byte) (busy, whole time.Duration, err error) {
	b, w, err := timeCopy(ch, dst, src)
	return time.Duration(b), time.Duration(w), err
}

// timeCopy copies in pieces, and returns the time spent in calls of ch that did something,
// and the time until the last end.
func timeCopy(ch Channel, dst, src []byte) (busy, whole int64, err error) {
	done := func(_ uint64, e error) {
		if err == nil {
			err = e
		}
	}
	begun := time.Now()
	for at := 0; at < len(src) || ch.Pending() > 0; {
		before := time.Now()
		did := false
		for at < len(src) && ch.Pending() < Window {
			n := min(len(src)-at, pieceBytes)
			if !ch.Submit(dst[at:at+n], src[at:at+n], uint64(at)) {
				break
			}
			at, did = at+n, true
		}
		if ch.Poll(done) > 0 || did {
			busy += int64(time.Since(before))
		}
	}
	return busy, int64(time.Since(begun)), err
}
