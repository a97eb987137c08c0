package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// run waits for the sidecar for at most wait, runs the ranks and returns the exit code.
func run(cfg launch.Config, wait time.Duration) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	terms := make(chan os.Signal, 2)
	signal.Notify(terms, unix.SIGTERM)
	go func() {
		for range terms { // the second SIGTERM ends the grace period
			if ctx.Err() != nil {
				signals <- unix.SIGKILL
			}
			stop()
		}
	}()
	cfg.Signals = signals
	if err := awaitSidecar(ctx, &cfg, wait); err != nil {
		reason := podlife.NoSidecar
		if ctx.Err() != nil { // SIGTERM came before the ranks were started
			reason = podlife.Terminated
		}
		return 1, errors.Join(err, writeFailure(&cfg, reason, err))
	}
	cfg.Failed = mpi.SameSidecar(cfg.Socket, cfg.Failed)
	e := launch.Run(ctx, cfg)
	if e == nil {
		return 0, nil
	}
	if cfg.Status == nil { // else the reader of the status reports the failure
		return e.Code, fmt.Errorf("first failure in this pod: rank %d %s", e.Rank, e.Text())
	}
	return e.Code, nil
}

// awaitSidecar waits until the sidecar is ready. It does not wait if no rank can be started:
// the pod then ends at once, whatever the sidecar waits for.
func awaitSidecar(ctx context.Context, cfg *launch.Config, wait time.Duration) error {
	if cfg.Unable != nil {
		return nil
	}
	return mpi.Await(ctx, cfg.Socket, wait, func(awaits string) {
		if awaits != "" {
			outlet.WriteLast(os.Stderr, fmt.Sprintf("outrigger-launch: the sidecar waits for %s\n", awaits))
		}
	})
}

// writeFailure writes the reason why no rank was started into the termination message.
func writeFailure(cfg *launch.Config, reason podlife.Reason, cause error) error {
	return cfg.Log.Write(&podlife.Message{Kind: podlife.KindRanks, Pod: cfg.Pod, Failures: []podlife.Failure{
		{Rank: cfg.First, Code: 1, Reason: reason, Text: cause.Error(), Time: time.Now()},
	}})
}
