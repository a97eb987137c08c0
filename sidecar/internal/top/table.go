package top

import (
	"errors"
	"fmt"
	"io"
	"net"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/report"
)

// Job is a job and the rows of its sidecars.
type Job struct {
	Entry jobrun.Entry
	Rows  []Row
}

const heading = "pod\tmsg/s\tMB/s sent\tframes/s\tMB/s in\tMB/s out\tsends\trecvs\tunexpected\tstalls\treconnects\tbusy\twaiting\t"

// Write prints the table of each job.
func Write(w io.Writer, jobs []Job, now time.Time) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "No job of yours runs on this machine. Start one with `outrigger run`.")
		return err
	}
	for i, j := range jobs {
		if i > 0 {
			_, _ = fmt.Fprintln(w) // Flush returns write errors, here and below
		}
		e := &j.Entry
		_, _ = fmt.Fprintf(w, "%s  %.8s  process %d, %d ranks in %d pods, for %s\n",
			e.Name, e.ID, e.PID, e.Ranks, len(e.Metrics), max(now.Sub(e.Started), 0).Round(time.Second))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprintln(t, heading)
		for _, r := range j.Rows {
			_, _ = fmt.Fprintln(t, r.text())
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("table of jobs: %w", err)
		}
		for _, line := range j.stuck() {
			_, _ = fmt.Fprintln(w, line)
		}
		for _, r := range j.Rows {
			if r.Err != nil {
				_, _ = fmt.Fprintf(w, "pod %d: %s\n", r.Pod, silence(r.Err))
			}
			if r.Exposed != (link.LentCounts{}) {
				_, _ = fmt.Fprintf(w, "pod %d: %s\n", r.Pod, report.ExposedText(&r.Exposed))
			}
			if r.Buffers.Ranks > 0 {
				_, _ = fmt.Fprintf(w, "pod %d: %s\n", r.Pod, r.Buffers.text())
			}
		}
	}
	return nil
}

// stuckAfter is how long all ranks must have waited before top prints what they wait for.
const stuckAfter = 5 * time.Second

// stuckLines bounds the lines about waits; `outrigger why` has the others.
const stuckLines = 4

// stuck returns lines about what the ranks wait for, if all of them wait.
func (j *Job) stuck() []string {
	var ranks []why.Rank
	for i := range j.Rows {
		if j.Rows[i].Err != nil {
			return nil // one of its ranks may not wait
		}
		ranks = append(ranks, j.Rows[i].waits...)
	}
	var lines []string
	switch {
	case why.Stuck(ranks, stuckAfter):
		lines = append(lines, why.Suspicion(stuckAfter))
	case why.Halted(ranks, stuckAfter) == nil:
		return nil
	}
	lines = append(lines, why.Explain(ranks)...)
	if more := len(lines) - 1 - stuckLines; more > 0 {
		lines = append(lines[:1+stuckLines], fmt.Sprintf("%d more lines: outrigger why %s", more, j.Entry.Name))
	}
	return lines
}

// waiting returns the last column: the number of waiting ranks, and the longest wait.
func (r *Row) waiting() string {
	if r.Waiting == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, %s", r.Waiting, why.Time(r.Longest))
}

func (r *Row) text() string {
	if r.Err != nil {
		return fmt.Sprintf("%d\t?\t?\t?\t?\t?\t?\t?\t?\t?\t?\t?\t?\t", r.Pod)
	}
	rates := "-\t-\t-\t-\t-"
	busy := "-"
	if !r.Fresh {
		rates = fmt.Sprintf("%.0f\t%.1f\t%.0f\t%.1f\t%.1f", r.Messages, r.Sent/1e6, r.Frames, r.In/1e6, r.Out/1e6)
		busy = fmt.Sprintf("%.0f %%", 100*r.Busy)
	}
	return fmt.Sprintf("%d\t%s\t%d\t%d\t%s\t%d\t%d\t%s\t%s\t", r.Pod, rates, r.Sends, r.Receives, report.Size(r.Unexpected), r.Stalls, r.Reconnects, busy, r.waiting())
}

func (b *Buffers) text() string {
	text := fmt.Sprintf("%d buffers seen, %d frequent, %d registrations, %s copied, %s not copied",
		b.Seen, b.Frequent, b.Registered, report.Size(b.CopiedBytes), report.Size(b.NotCopiedBytes))
	if b.Stopped > 0 {
		text += fmt.Sprintf("; too few are used again of %d of %d ranks", b.Stopped, b.Ranks)
	}
	return text
}

// silence returns why a sidecar gave no report.
func silence(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return "its sidecar is starting or has ended"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "its sidecar does not answer: it may be stopped, or the machine too busy"
	}
	return "no report: " + err.Error()
}
