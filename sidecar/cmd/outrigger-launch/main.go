// Command outrigger-launch starts the ranks of one pod beside their sidecar.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
)

func main() { os.Exit(execute()) }

func execute() int {
	var socket, ranks string
	var statusFD int
	var prefix bool
	var patience time.Duration
	code := 0
	cmd := &cobra.Command{
		Use:   "outrigger-launch --socket PATH --ranks FIRST-LAST -- PROGRAM [ARGS]",
		Short: "start the ranks of one pod beside their sidecar",
		Long: `outrigger-launch waits for the sidecar's socket and starts PROGRAM once for each
rank, with OUTRIGGER_SOCKET and OUTRIGGER_RANK in its environment. Signals are
passed on. When a rank fails the others get SIGTERM, then SIGKILL; the exit code
is that of the first failure, 128+N for a signal, 127 for a program that does
not exist.`,
		Example:       "  outrigger-launch --socket /run/outrigger/sidecar.sock --ranks 4-7 -- ./solver -n 1000",
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg := launch.Config{Socket: socket, Program: args, Prefix: prefix, Out: os.Stdout, Err: os.Stderr}
			var err error
			if cfg.First, cfg.Last, err = parseRanks(ranks); err != nil {
				return err
			}
			if statusFD > 0 {
				unix.CloseOnExec(statusFD) // or a rank could report in the launcher's name
				cfg.Status = os.NewFile(uintptr(statusFD), "status")
			}
			code, err = run(cfg, patience)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&socket, "socket", "", "the sidecar's Unix socket (required)")
	f.StringVar(&ranks, "ranks", "", "world ranks to start, such as 4-7 (required)")
	f.IntVar(&statusFD, "status-fd", 0, "write a JSON line to this descriptor when a rank starts, exits or fails")
	f.BoolVar(&prefix, "prefix", false, "put [rank] before each line of output")
	f.DurationVar(&patience, "wait", time.Minute, "how long to wait for the sidecar's socket")
	for _, name := range []string{"socket", "ranks"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-launch:", err)
		return max(code, 1)
	}
	return code
}

func parseRanks(text string) (first, last int, err error) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		b = a
	}
	first, err = strconv.Atoi(a)
	if err == nil {
		last, err = strconv.Atoi(b)
	}
	if err != nil || first < 0 || last < first {
		return 0, 0, fmt.Errorf("--ranks %q: want FIRST-LAST, such as 4-7", text)
	}
	return first, last, nil
}

func run(cfg launch.Config, patience time.Duration) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	cfg.Signals = signals
	if err := waitSocket(ctx, cfg.Socket, patience); err != nil {
		return 1, err
	}
	e := launch.Run(ctx, cfg)
	if e == nil {
		return 0, nil
	}
	if cfg.Status == nil { // else its reader says so
		return e.Code, fmt.Errorf("first failure: rank %d %s", e.Rank, e.Text())
	}
	return e.Code, nil
}

// waitSocket waits until the sidecar has made its socket.
func waitSocket(ctx context.Context, path string, patience time.Duration) error {
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("ended while waiting for the sidecar at %s", path)
		case <-end.C:
			return fmt.Errorf("no sidecar at %s within %v: is it running, and is the directory shared?", path, patience)
		}
	}
}
