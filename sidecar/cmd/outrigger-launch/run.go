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

func run(cfg launch.Config, patience time.Duration) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	terms := make(chan os.Signal, 2)
	signal.Notify(terms, unix.SIGTERM)
	go func() {
		for range terms { // the second one ends the grace
			if ctx.Err() != nil {
				signals <- unix.SIGKILL
			}
			stop()
		}
	}()
	cfg.Signals = signals
	if err := await(ctx, &cfg, patience); err != nil {
		reason := podlife.NoSidecar
		if ctx.Err() != nil { // it was told to end before it had begun
			reason = podlife.Terminated
		}
		return 1, errors.Join(err, leaveWord(&cfg, reason, err))
	}
	cfg.Failed = mpi.SameSidecar(cfg.Socket, cfg.Failed)
	e := launch.Run(ctx, cfg)
	if e == nil {
		return 0, nil
	}
	if cfg.Status == nil { // else its reader says so
		return e.Code, fmt.Errorf("first failure in this pod: rank %d %s", e.Rank, e.Text())
	}
	return e.Code, nil
}

// await waits for the sidecar, unless no rank can be started: then the end of the pod does
// not wait for what the sidecar waits for.
func await(ctx context.Context, cfg *launch.Config, patience time.Duration) error {
	if cfg.Unable != nil {
		return nil
	}
	return mpi.Await(ctx, cfg.Socket, patience, func(awaits string) {
		if awaits != "" {
			outlet.WriteLast(os.Stderr, fmt.Sprintf("outrigger-launch: the sidecar waits for %s\n", awaits))
		}
	})
}

// leaveWord tells why no rank was started.
func leaveWord(cfg *launch.Config, reason podlife.Reason, cause error) error {
	return cfg.Log.Write(&podlife.Message{Kind: podlife.KindRanks, Pod: cfg.Pod, Failures: []podlife.Failure{
		{Rank: cfg.First, Code: 1, Reason: reason, Text: cause.Error(), Time: time.Now()},
	}})
}
