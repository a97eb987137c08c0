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

// topOptions is what a person asks for.
type topOptions struct {
	job      string // "": all
	once     bool
	interval time.Duration
	redraw   bool
	out      io.Writer
}

// intervalMin keeps the watching from being what the sidecars do.
const intervalMin = 50 * time.Millisecond

func topCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [JOB] [flags]",
		Short: "watch the sidecars of running jobs",
		Long: `top shows what the sidecars of your jobs on this machine do, again every
interval: on a terminal in place, else one block after the other. JOB is a job's
name, the process number of its outrigger run, its directory or the beginning of
its id; then top ends with the job. Without JOB it shows all jobs until Ctrl-C.

  msg/s, MB/s sent    messages of the pod's ranks and their payload, wherever to
  frames/s            frames of the wire protocol, in and out
  MB/s in, out        bytes on the TCP link to other pods
  sends, recvs        requests that are open now
  unexpected          memory of messages that no receive has asked for yet
  stalls              small messages that went by rendezvous because credit was missing
  reconnects          connections that broke and were resumed
  busy                turns of the engine that found work, of all turns
  waiting             ranks that do nothing but wait, for a second or longer, and
                      the longest of them

Below the table of a job whose ranks all wait stands what they wait for: the first
lines of outrigger why.

Stalls and reconnects are counted since the job began, all else is of the last
interval. "-" is a rate that needs a second look, "?" a sidecar that did not
answer.`,
		Example: `  outrigger top                     # all jobs of yours
  outrigger top npb --interval 5s   # one job, calmly
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
	f.BoolVar(&o.once, "once", false, "look twice, an interval apart, print one block and end")
	f.DurationVar(&o.interval, "interval", time.Second, "time between two looks")
	return cmd
}

// watch looks until ctx or the chosen job ends.
func (o *topOptions) watch(ctx context.Context) error {
	w := top.Watcher{Fetch: jobrun.FetchReport}
	next := time.NewTicker(o.interval)
	defer next.Stop()
	for look := 1; ; look++ {
		entries, err := o.entries()
		if err != nil {
			return err
		}
		if o.job != "" && len(entries) == 0 {
			if look > 1 {
				return nil // it has ended
			}
			return fmt.Errorf("no job of yours is %q: `outrigger top` lists those that run", o.job)
		}
		jobs := w.Sample(ctx, entries)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how one leaves
		}
		last := o.once && (look == 2 || len(jobs) == 0)
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

// entries are the jobs that are asked for.
func (o *topOptions) entries() ([]jobrun.Entry, error) {
	all, err := jobrun.Jobs()
	if o.job == "" {
		return all, err
	}
	return slices.DeleteFunc(all, func(e jobrun.Entry) bool { return !e.Is(o.job) }), err
}

// ANSI: the cursor to the top left; to the end of the line, and of the screen,
// erased. The picture is not erased first, so that it does not flicker.
const (
	ansiHome     = "\033[H"
	ansiLineEnd  = "\033[K"
	ansiRestGone = "\033[J"
)

// show writes one block at once.
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

// screen fits text to the terminal and draws it over what is there.
func screen(text []byte, terminal *os.File) []byte {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		width, height = 1<<16, 1<<16 // it does not say: it may scroll
	}
	return fit(text, width, height)
}

// fit cuts lines and rows off, because a line that wraps or a screen that
// scrolls would move what the next picture is drawn over.
func fit(text []byte, width, height int) []byte {
	out := []byte(ansiHome)
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	for i, line := range lines[:min(len(lines), height-1)] {
		if i > 0 {
			out = append(out, "\r\n"...)
		}
		out = append(append(out, line[:min(len(line), width)]...), ansiLineEnd...)
	}
	return append(append(out, "\r\n"...), ansiRestGone...)
}
