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
	if err := waitSocket(ctx, cfg.Socket, patience); err != nil {
		reason := podlife.NoSidecar
		if errors.Is(err, errTold) {
			reason = podlife.Terminated
		}
		return 1, errors.Join(err, leaveWord(&cfg, reason, err))
	}
	e := launch.Run(ctx, cfg)
	if e == nil {
		return 0, nil
	}
	if cfg.Status == nil { // else its reader says so
		return e.Code, fmt.Errorf("first failure in this pod: rank %d %s", e.Rank, e.Text())
	}
	return e.Code, nil
}

// errTold says that the launcher was told to end before it had begun.
var errTold = errors.New("ended while waiting for the sidecar")

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
			return fmt.Errorf("%w at %s", errTold, path)
		case <-end.C:
			return fmt.Errorf("no sidecar at %s within %v: is it running, and is the directory shared?", path, patience)
		}
	}
}

// leaveWord tells why no rank was started.
func leaveWord(cfg *launch.Config, reason podlife.Reason, cause error) error {
	return cfg.Log.Write(&podlife.Message{Kind: podlife.KindRanks, Pod: cfg.Pod, Failures: []podlife.Failure{
		{Rank: cfg.First, Code: 1, Reason: reason, Text: cause.Error(), Time: time.Now()},
	}})
}
