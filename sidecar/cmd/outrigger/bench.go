package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/report"
)

func benchCommand() *cobra.Command {
	s := jobrun.Spec{Name: "bench", Ranks: 2}
	var o rankOptions
	var asJSON bool
	var plots string
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "measure latency, bandwidth, message rate and overlap between two ranks",
		Long: `bench runs a job of two ranks on this machine and measures, by the method in the
header of hack/bench/mpibench.c: half a round trip of 8 B to 4 MiB; bandwidth with
64 messages in flight; messages a second; and how much of a transfer hides
behind computing, with one rank computing and with both.`,
		Example: `  outrigger bench                  # two pods, over TCP
  outrigger bench --pods 1         # two ranks of one pod, over shared memory
  outrigger bench --plots out/     # and draw latency and bandwidth`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.peer = map[int]string{1: "outrigger-local", 2: "outrigger-tcp"}[s.Pods]
			s.Program = []string{self, "bench-rank", "--peer", o.peer}
			if o.private {
				s.Program = append(s.Program, "--private")
			}
			if o.quick {
				s.Program = append(s.Program, "--quick")
			}
			return bench(cmd, &s, asJSON, plots)
		},
	}
	f := cmd.Flags()
	f.IntVar(&s.Pods, "pods", 2, "1: both ranks in one pod; 2: one each")
	f.BoolVar(&asJSON, "json", false, "print one JSON object a figure instead of a table")
	f.StringVar(&plots, "plots", "", "draw latency and bandwidth as PNG into this directory")
	f.BoolVar(&o.private, "private", false, "use ordinary memory instead of memory shared with the sidecar")
	f.BoolVar(&o.quick, "quick", false, "few iterations: to see that it works, not for figures")
	f.StringVar(&s.Tuning.Wait, "wait", "", "how sidecars wait: poll, yield or block (default yield)")
	return cmd
}

// bench runs the job and shows its figures.
func bench(cmd *cobra.Command, s *jobrun.Spec, asJSON bool, plots string) error {
	r, w := io.Pipe()
	var figures []figure
	read := make(chan error, 1)
	go func() {
		var err error
		figures, err = readFigures(r, cmd.OutOrStdout(), asJSON)
		read <- errors.Join(err, r.CloseWithError(err))
	}()
	err := jobrun.Run(cmd.Context(), s, w, os.Stderr, nil)
	err = errors.Join(err, w.Close(), <-read)
	if err != nil {
		return err
	}
	if !asJSON {
		if err := printFigures(cmd.OutOrStdout(), figures); err != nil {
			return err
		}
	}
	if plots == "" {
		return nil
	}
	return plotFigures(plots, figures)
}

// readFigures takes the measuring rank's lines, passing them on as they come or
// telling a terminal how far it is.
func readFigures(r io.Reader, w io.Writer, asJSON bool) ([]figure, error) {
	var all []figure
	tty := term.IsTerminal(int(os.Stderr.Fd()))
	in := bufio.NewScanner(r)
	for in.Scan() {
		var f figure
		if err := json.Unmarshal(in.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("figure %q: %w", in.Text(), err)
		}
		all = append(all, f)
		if asJSON {
			if _, err := fmt.Fprintln(w, in.Text()); err != nil {
				return nil, err
			}
		} else if tty {
			fmt.Fprintf(os.Stderr, "\r\033[K%s %s", f.Test, report.Size(uint64(f.Bytes)))
		}
	}
	if tty && !asJSON {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	return all, in.Err()
}

func printFigures(w io.Writer, all []figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "test\tsize\tfigure\t\t") // Flush reports a broken output
	for _, f := range all {
		text := ""
		switch f.Test {
		case "latency":
			text = fmt.Sprintf("%.2f us\tbest %.2f us", f.US, f.USMin)
		case "bandwidth":
			text = fmt.Sprintf("%.0f MB/s\t", f.MBs)
		case "rate":
			text = fmt.Sprintf("%.0f messages/s\t", f.MsgS)
		case "overlap":
			text = fmt.Sprintf("%.0f %%\t%s, %s computing", 100**f.Overlap, f.Side, f.Mode)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t\n", f.Test, report.Size(uint64(f.Bytes)), text)
	}
	return t.Flush()
}
