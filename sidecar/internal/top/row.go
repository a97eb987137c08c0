// Package top makes the table of `outrigger top`: the activity of the sidecars of running
// jobs, as rates between two samples of their counters.
package top

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// Sample is a sidecar's report at one moment, or the error of the request.
type Sample struct {
	At     time.Time
	Report obs.Report
	Err    error
}

// Row is the activity of one sidecar between two samples. Rates are per second.
type Row struct {
	Pod             int
	Err             error
	Fresh           bool            // there was no earlier sample, so that there are no rates
	Messages, Sent  float64         // messages and payload bytes of the pod's ranks
	Frames          float64         // frames of the wire protocol, in both directions
	In, Out         float64         // bytes on the link to other pods
	Sends, Receives int             // operations that are open now
	Unexpected      uint64          // bytes parked now
	Stalls          uint64          // eager messages that went by rendezvous because credit was missing, since the job began
	Reconnects      uint64          // reconnections since the job began
	Busy            float64         // 0 to 1: turns of the engine that found work
	Exposed         link.LentCounts // since the job began
	Buffers         Buffers
	Waiting         int     // ranks that have only waited for a second or longer
	Longest         float64 // seconds of the longest of them
	waits           []why.Rank
}

// waitLeast is the shortest wait that counts as waiting, in seconds.
const waitLeast = 1

// noteWaits sets what the sidecar's ranks wait for.
func (r *Row) noteWaits(ranks []why.Rank) {
	r.waits = ranks
	for i := range ranks {
		if s := ranks[i].Idle(); s >= waitLeast {
			r.Waiting++
			r.Longest = max(r.Longest, s)
		}
	}
}

// Buffers sums up the buffers of a sidecar's ranks since the job began, if its link chooses
// between copying and gathering.
type Buffers struct {
	Seen, Frequent, Registered  uint64
	CopiedBytes, NotCopiedBytes uint64
	Ranks, Stopped              int // ranks that have any; of them, those of which no more are counted
}

// Compare makes the row of a sidecar. A sidecar that did not answer at one of the samples,
// or whose counters began anew, has no rates.
func Compare(pod int, before, now *Sample) Row {
	t := &now.Report.Totals
	r := Row{Pod: pod, Err: now.Err, Fresh: true}
	if now.Err != nil {
		return r
	}
	r.Sends, r.Receives, r.Unexpected, r.Stalls, r.Reconnects = t.Sends, t.Receives, t.UnexpectedBytes, t.CreditStalls, t.Reconnects
	r.Exposed = now.Report.Exposed
	r.Buffers = buffers(now.Report.Buffers)
	r.noteWaits(now.Report.Waits)
	if before == nil || before.Err != nil {
		return r
	}
	old := &before.Report.Totals
	seconds := now.At.Sub(before.At).Seconds()
	if seconds <= 0 || t.Busy+t.Idle < old.Busy+old.Idle {
		return r
	}
	r.Fresh = false
	rate := func(now, before uint64) float64 { return float64(now-min(before, now)) / seconds }
	messages, bytes := sum(now.Report.Cells)
	oldMessages, oldBytes := sum(before.Report.Cells)
	r.Messages, r.Sent = rate(messages, oldMessages), rate(bytes, oldBytes)
	r.Frames = rate(t.FramesIn+t.FramesOut, old.FramesIn+old.FramesOut)
	r.In, r.Out = rate(t.BytesIn, old.BytesIn), rate(t.BytesOut, old.BytesOut)
	if turns := t.Busy + t.Idle - old.Busy - old.Idle; turns > 0 {
		r.Busy = float64(t.Busy-min(old.Busy, t.Busy)) / float64(turns)
	}
	return r
}

func buffers(all []obs.Buffers) (b Buffers) {
	for _, x := range all {
		b.Seen += x.Seen
		b.Frequent += x.Frequent
		b.Registered += x.Registered
		b.CopiedBytes += x.CopiedBytes
		b.NotCopiedBytes += x.GatheredBytes
		b.Ranks++
		if x.Stopped {
			b.Stopped++
		}
	}
	return b
}

func sum(cells []obs.Cell) (messages, bytes uint64) {
	for _, c := range cells {
		messages += c.Messages
		bytes += c.Bytes
	}
	return messages, bytes
}
