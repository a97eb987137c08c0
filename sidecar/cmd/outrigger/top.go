package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/top"
)

// topOptions holds the flags of outrigger top and its output.
type topOptions struct {
	job      string // "": all
	once     bool
	interval time.Duration
	redraw   bool
	out      io.Writer
}

// intervalMin bounds the load that top causes: at 50 ms it remains a small part of the
// sidecars' work.
const intervalMin = 50 * time.Millisecond

func topCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [JOB] [flags]",
		Short: "watch the sidecars of running jobs",
		Long: `top shows the activity of the sidecars of your jobs on this machine, once in each
interval: on a terminal in place, else as one block after the other. JOB is a job's
name, the process number of its outrigger run, its directory or the beginning of
its id; then top ends with the job. Without JOB it shows all jobs until Ctrl-C.

  msg/s, MB/s sent    messages of the pod's ranks and their payload, to any rank
  frames/s            frames of the wire protocol, in and out
  MB/s in, out        bytes on the TCP link to other pods
  sends, recvs        requests that are open now
  unexpected          memory of messages that no receive matches yet
  stalls              small messages sent by rendezvous because credit was missing
  reconnects          connections that broke and were resumed
  busy                share of the engine's turns that found work
  waiting             ranks that have only waited for a second or longer, and the
                      longest time

If all ranks of a job wait, the first lines of outrigger why follow below its table.

Stalls and reconnects are counted since the job began, all other values in the last
interval. "-" is a rate that needs a second sample, "?" a sidecar that did not
answer.`,
		Example: `  outrigger top                     # all jobs of yours
  outrigger top npb --interval 5s   # one job, every 5 s
  outrigger top --once              # one block, for scripts`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.job = args[0]
			}
			if o.interval < intervalMin {
				return fmt.Errorf("--interval %v: want at least %v", o.interval, intervalMin)
			}
			o.out = cmd.OutOrStdout()
			o.redraw = !o.once && term.IsTerminal(int(os.Stdout.Fd()))
			return o.watch(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.once, "once", false, "take two samples, an interval apart, print one block and end")
	f.DurationVar(&o.interval, "interval", time.Second, "time between two samples")
	return cmd
}

// watch samples and shows the jobs until ctx or the chosen job ends.
func (o *topOptions) watch(ctx context.Context) error {
	w := top.Watcher{Fetch: jobrun.FetchReport}
	next := time.NewTicker(o.interval)
	defer next.Stop()
	for sample := 1; ; sample++ {
		entries, err := o.entries()
		if err != nil {
			return err
		}
		if o.job != "" && len(entries) == 0 {
			if sample > 1 {
				return nil // the job has ended
			}
			return fmt.Errorf("no job of yours is %q: `outrigger top` lists the running jobs", o.job)
		}
		jobs := w.Sample(ctx, entries)
		if ctx.Err() != nil {
			return nil // Ctrl-C is the usual end
		}
		last := o.once && (sample == 2 || len(jobs) == 0)
		if last || !o.once {
			if err := o.show(jobs); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// entries returns the jobs that JOB names, or all.
func (o *topOptions) entries() ([]jobrun.Entry, error) {
	all, err := jobrun.Jobs()
	if o.job == "" {
		return all, err
	}
	return slices.DeleteFunc(all, func(e jobrun.Entry) bool { return !e.Is(o.job) }), err
}

// ANSI escape sequences. The screen is overwritten, not erased first, so that it does not
// flicker.
const (
	ansiHome      = "\033[H" // move the cursor to the top left
	ansiEraseLine = "\033[K" // erase the rest of the line
	ansiEraseRest = "\033[J" // erase the rest of the screen
)

// show writes one block with a single write.
func (o *topOptions) show(jobs []top.Job) error {
	var b bytes.Buffer
	if err := top.Write(&b, jobs, time.Now()); err != nil {
		return err
	}
	text := b.Bytes()
	if o.redraw {
		text = screen(text, os.Stdout)
	} else if !o.once {
		text = append(text, '\n')
	}
	_, err := o.out.Write(text)
	return err
}

// screen returns text, cut to the size of the terminal, with the sequences that draw it
// over the previous block.
func screen(text []byte, terminal *os.File) []byte {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		width, height = 1<<16, 1<<16 // the size is unknown: the terminal may scroll
	}
	return fit(text, width, height)
}

// fit cuts lines and columns that exceed the screen: if a line wrapped or the screen
// scrolled, the next block would not cover this one.
func fit(text []byte, width, height int) []byte {
	out := []byte(ansiHome)
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	for i, line := range lines[:min(len(lines), height-1)] {
		if i > 0 {
			out = append(out, "\r\n"...)
		}
		out = append(append(out, line[:min(len(line), width)]...), ansiEraseLine...)
	}
	return append(append(out, "\r\n"...), ansiEraseRest...)
}
