package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/report"
)

func runCommand() *cobra.Command {
	var s jobrun.Spec
	var arenaMiB int64
	var wantReport, noPrefix, noStatus, encrypt bool
	var plots string
	cmd := &cobra.Command{
		Use:   "run -n RANKS [--pods P] [flags] -- PROGRAM [ARGS]",
		Short: "run a job on this machine",
		Long: `run starts one sidecar and one launcher for each pod, and PROGRAM once for each
rank. Output carries the rank in front. When a rank or a sidecar fails, the job
ends, the first failure is named, and its exit code is this command's. On a
terminal the last line says how long the job runs, how many ranks are alive, and
what they send.`,
		Example: `  outrigger run -n 4 --pods 2 -- bin/npb -class A cg
  outrigger run -n 8 --pods 4 --report --plots out/ -- ./solver --steps 100`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Program, s.ArenaBytes, s.Prefix = args, arenaMiB<<20, !noPrefix
			s.Name = filepath.Base(args[0])
			if encrypt {
				s.Tuning.Encrypt = bootstrap.EncryptTLS
			}
			line := newStatusLine()
			if noStatus {
				line = &statusLine{}
			}
			var after func([]obs.Report) error
			if wantReport || plots != "" {
				after = func(all []obs.Report) error { return report.Show(line.through(os.Stdout), all, plots) }
			}
			if err := runJob(cmd.Context(), &s, line, after); err != nil {
				return fmt.Errorf("job failed: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVarP(&s.Ranks, "ranks", "n", 1, "number of ranks")
	f.IntVar(&s.Pods, "pods", 1, "number of pods, each with a sidecar of its own; ranks are spread evenly")
	f.Int64Var(&arenaMiB, "arena", 0, "shared memory of each rank in MiB (default 256)")
	f.StringVar(&s.Tuning.Wait, "wait", "", "how sidecars wait: poll, yield or block (default yield)")
	f.StringVar(&s.Tuning.Rendezvous, "rendezvous", "", "protocol of large messages: auto, get, put or stream")
	f.StringVar(&s.Tuning.Transport, "transport", "", "transport between pods: auto or tcp")
	f.BoolVar(&encrypt, "encrypt", false, "carry data between pods inside TLS 1.3 with the job's own authority")
	f.BoolVar(&wantReport, "report", false, "print what was communicated, by protocol and between which ranks")
	f.StringVar(&plots, "plots", "", "write the rank-by-rank matrix as a PNG into this directory")
	f.BoolVar(&noPrefix, "no-prefix", false, "do not put the rank before each line of output")
	f.BoolVar(&noStatus, "no-status", false, "do not show on a terminal how far the job is")
	f.DurationVar(&s.Timeout, "timeout", 0, "end the job after this time (default: none)")
	f.StringVar(&s.Dir, "dir", "", "keep the job's directory here: bootstrap document, credentials, sockets, process ids")
	f.StringVar(&s.LogLevel, "sidecar-log", "error", "log level of the sidecars: debug, info, warn or error")
	return cmd
}

// runJob runs a job to its end with a line that says how far it is.
func runJob(ctx context.Context, s *jobrun.Spec, line *statusLine, report func([]obs.Report) error) error {
	j, err := jobrun.Start(ctx, s, line.through(os.Stdout), line.through(os.Stderr))
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() { defer close(gone); line.follow(following, s.Ranks, j) }()
	err = j.Wait(ctx, report)
	stop()
	<-gone
	return err
}
