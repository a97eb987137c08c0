package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// refusalTime is the time for which a sidecar that may not join refuses its ranks: as long as
// a client tries to reach a sidecar.
const refusalTime = 30 * time.Second

// refuse answers every application with the reason why it is not attached, until refusalTime
// or ctx ends, and returns cause. Without it a rank that starts now would find a socket file
// without a listener, and wait.
func (d *daemon) refuse(ctx context.Context, cause error) error {
	d.log.Error("refused to start", "cause", cause)
	err := d.message.fail(podlife.Failure{Rank: d.firstRank(), Code: 1, Reason: podlife.SidecarRestarted, Text: cause.Error(), Time: time.Now()})
	cfg, more := d.sessionConfig()
	err = errors.Join(cause, err, more)
	cfg.Refusal = cause
	if stale := os.Remove(d.o.socket); stale != nil && !errors.Is(stale, fs.ErrNotExist) {
		return errors.Join(err, stale)
	}
	d.start = newStart(d.log)
	d.start.set("", true) // the launcher starts its ranks, which get the reason
	if more := d.listenLaunchers(&cfg); more != nil {
		return errors.Join(err, more)
	}
	server, more := session.Listen(d.o.socket, cfg, nil) // without a host: no session is attached
	if more != nil {
		return errors.Join(err, more, d.closePMI())
	}
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	launchers := make(chan error, 1)
	go func() { launchers <- d.pmi.ServeLauncher(d.launchers) }()
	return errors.Join(err, server.Serve(ctx), server.Close(), d.closePMI(), <-launchers)
}
