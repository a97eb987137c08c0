package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// open opens all sockets but the one for peers, so that applications can connect and wait
// before the sidecar is ready.
func (d *daemon) open() error {
	users, anyUser, err := d.o.appUsers()
	if err != nil {
		return err
	}
	if err := d.removeStale(); err != nil {
		return err
	}
	d.startTree()
	d.makeMeetings()
	if err := d.listenLaunchers(&session.Config{UIDs: users, AnyUID: anyUser}); err != nil {
		return err
	}
	if d.sessions, err = session.Bind(d.o.socket); err != nil {
		return err
	}
	if d.beat, err = session.StartBeat(d.o.socket); err != nil { // of a full file system, for example
		d.log.Warn("programs that wait for this sidecar will not notice if it is stopped", "cause", err)
	}
	d.watch, err = listenMetrics(d.o.metrics, d.o.health)
	return err
}

// removeStale removes the sockets of a sidecar that was killed before it joined the job.
// Without --once it removes none: they could belong to a sidecar that runs.
func (d *daemon) removeStale() error {
	if d.o.once == "" {
		return nil
	}
	paths := []string{d.o.socket}
	for _, address := range d.o.metrics {
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// serveStart serves health and the cause of the sidecar's wait until life ends.
func (d *daemon) serveStart(servers *errgroup.Group, life context.Context) {
	servers.Go(func() error { return d.pmi.ServeLauncher(d.launchers) })
	pod := d.doc.Pods[d.o.pod]
	for i := range d.watch {
		w := &d.watch[i]
		w.starting = &obs.Starting{FirstRank: pod.FirstRank, Ranks: pod.Ranks, HealthOnly: w.health, State: d.start.state}
		servers.Go(func() error { return obs.Serve(life, w.listener, w.starting) })
	}
}

// closeStart closes the sockets that open has opened, except for the listeners of health,
// which end with life.
func (d *daemon) closeStart() error {
	var err error
	if d.pmi != nil {
		err = d.closePMI()
	}
	err = errors.Join(err, d.beat.Stop())
	if d.sessions != nil {
		err = errors.Join(err, closeListener(d.sessions))
	}
	return err
}

// serve runs all servers and the engine until asked ends. Then it delivers the messages of
// the ranks, closes the servers, and stops the engine last, so that no message is lost.
func (d *daemon) serve(asked context.Context, g *errgroup.Group, life context.Context, end func()) error {
	engineCtx, stopEngine := context.WithCancel(context.Background())
	engineDone := make(chan struct{})
	go func() {
		defer close(engineDone)
		d.engine.Run(engineCtx)
	}()
	g.Go(func() error { return d.server.Serve(life) })
	g.Go(d.mesh.Serve)
	g.Go(d.servePMI)
	sources := d.sources(func() bool { return asked.Err() == nil })
	for _, w := range d.watch {
		w.starting.Enter(w.handler(sources))
	}
	d.start.set("", true)
	pod := d.doc.Pods[d.o.pod]
	d.log.Info("ready", "job", d.doc.Job.Name, "ranks", pod.Ranks, "address", pod.Address, "transport", d.transport, "encrypt", d.doc.Tuning.Encrypt == bootstrap.EncryptTLS)
	g.Go(func() error {
		var err error
		select {
		case <-asked.Done():
			err = d.drain()
		case <-life.Done(): // a server has failed
			d.engine.Leave() // ends the wait of ranks that are not attached yet
		}
		d.summarize(sources)
		d.ending.Store(true)
		end()
		err = errors.Join(err, d.server.Close(), d.beat.Stop(), d.closePMI())
		return errors.Join(err, d.tree.Close(), d.mesh.Close()) // in this order: the tree uses connections of the mesh
	})
	err := g.Wait()
	stopEngine()
	<-engineDone
	err = errors.Join(err, d.engine.Close())
	d.mesh.Drain() // closes connections that the engine has just released
	d.writers.Wait()
	return err
}

// summarize puts the traffic of the job into the termination message.
func (d *daemon) summarize(s *obs.Sources) {
	if p, err := d.snapshot(); err == nil { // an error means that the engine has stopped
		d.message.setTraffic(obs.Transports(s, &p))
	}
}

func (d *daemon) sources(ready func() bool) *obs.Sources {
	return &obs.Sources{
		Alive: d.engine.Alive, Snapshot: d.snapshot, Traffic: d.traffic, Waits: d.waits, Trace: d.timeline, Flight: &d.flight, FirstRank: d.firstRank(), Ranks: d.doc.Ranks, Pod: d.o.pod, Transport: d.transport,
		Ready: ready, Failure: d.failure.Load, Log: d.log, Break: d.breakPeer, End: d.endJob, Drain: d.drainJob,
	}
}

// traffic returns the traffic between pairs of ranks, sorted, and the sum of all pairs that
// the engine does not list.
func (d *daemon) traffic() (cells []obs.Cell, rest obs.Cell, err error) {
	err = d.engine.Traffic(func(src uint32, to []core.Talk, more core.Traffic) {
		for _, t := range to {
			cells = append(cells, obs.Cell{Src: uint64(src), Dst: uint64(t.Dst), Messages: t.Messages, Bytes: t.Bytes})
		}
		rest.Messages += more.Messages
		rest.Bytes += more.Bytes
	})
	slices.SortFunc(cells, func(a, b obs.Cell) int { return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst)) })
	return cells, rest, err
}

// timeline returns the recorded events, in the engine's time, or nil if none are recorded.
func (d *daemon) timeline() (io.WriterTo, error) {
	part, err := d.engine.Traced()
	if part == nil || err != nil {
		return nil, err
	}
	return &trace.Timeline{Part: part, Pod: d.o.pod, Transport: d.transport, Epoch: d.begun.UnixNano()}, nil
}

func (d *daemon) breakPeer(peer int) error {
	if peer < 0 || peer >= len(d.doc.Pods) || peer == d.o.pod {
		return fmt.Errorf("%w: pod %d of %d, seen from pod %d", obs.ErrNoPeer, peer, len(d.doc.Pods), d.o.pod)
	}
	return d.engine.Break(link.Peer(peer))
}

// endJob fails the job on behalf of the program that has started it. The ranks learn the
// reason before they are ended, rather than that other ranks have vanished.
func (d *daemon) endJob(why string) {
	d.engine.Fail(&core.Failure{Rank: shm.AnySource, Code: 1, Reason: podlife.TextEnded + why})
}

// drainJob records that the ranks get SIGTERM: the end of a rank without a handler for it is
// then not a failure.
func (d *daemon) drainJob(why string) {
	_ = d.engine.InTurn(func() { d.engine.Drain(podlife.TextEnded + why) }) // a stopped engine judges no rank
}

func (d *daemon) snapshot() (obs.Snapshot, error) {
	v, err := d.engine.View()
	if err != nil {
		return obs.Snapshot{}, err
	}
	var buffers []obs.Buffers
	for _, b := range v.Buffers {
		buffers = append(buffers, obs.Buffers{Rank: b.Rank, BufferCounts: b.BufferCounts})
	}
	return obs.Snapshot{
		Core: v.Core, Buffers: buffers, Times: v.Times, Busy: v.Turns.Busy, Idle: v.Turns.Idle, Yields: v.Turns.Yields, Sleeps: v.Turns.Sleeps,
		BytesIn: v.LinkBytesIn, BytesOut: v.LinkBytesOut, RefusedConnections: d.mesh.Refused(), Direct: v.Direct, Paths: v.Paths, Lent: v.Lent, Copies: v.Copies,
	}, nil
}
