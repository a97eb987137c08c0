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

// open opens all sockets but that for peers: applications may connect, and wait for their
// sidecar, before it says that it is alive.
func (d *daemon) open() error {
	users, everybody, err := d.o.mayAttach()
	if err != nil {
		return err
	}
	if err := d.removeStale(); err != nil {
		return err
	}
	d.startTree()
	d.makeMeetings()
	if err := d.listenLaunchers(&session.Config{UIDs: users, AnyUID: everybody}); err != nil {
		return err
	}
	if d.sessions, err = session.Bind(d.o.socket); err != nil {
		return err
	}
	d.watch, err = listenMetrics(d.o.metrics, d.o.health)
	return err
}

// removeStale removes the sockets of a sidecar that was killed before it joined the job, of
// which --once tells: without it they may be those of one that runs.
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

// serveStart serves health, and what the sidecar waits for, until life ends.
func (d *daemon) serveStart(servers *errgroup.Group, life context.Context) {
	servers.Go(func() error { return d.pmi.ServeLauncher(d.launchers) })
	pod := d.doc.Pods[d.o.pod]
	for i := range d.watch {
		w := &d.watch[i]
		w.starting = &obs.Starting{FirstRank: pod.FirstRank, Ranks: pod.Ranks, HealthOnly: w.health, State: d.start.state}
		servers.Go(func() error { return obs.Serve(life, w.listener, w.starting) })
	}
}

// closeStart closes what open has opened, but for the listeners of health, which end with
// life.
func (d *daemon) closeStart() error {
	var err error
	if d.pmi != nil {
		err = d.closePMI()
	}
	if d.sessions != nil {
		err = errors.Join(err, closed(d.sessions))
	}
	return err
}

// serve runs everything until asked ends, in an order that loses nothing: what
// was sent is delivered first, and the engine stops last.
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
		case <-life.Done(): // something has ended by itself
			d.engine.Leave() // ranks that wait for their attachment hear of it
		}
		d.summarize(sources)
		d.ending.Store(true)
		end()
		err = errors.Join(err, d.server.Close(), d.closePMI())
		return errors.Join(err, d.tree.Close(), d.mesh.Close()) // the tree's connections are the mesh's
	})
	err := g.Wait()
	stopEngine()
	<-engineDone
	err = errors.Join(err, d.engine.Close())
	d.mesh.Drain() // of what the engine has just let go
	d.told.Wait()
	return err
}

func (d *daemon) summarize(s *obs.Sources) {
	if p, err := d.snapshot(); err == nil { // else the engine has ended before
		d.words.summarize(obs.Transports(s, &p))
	}
}

func (d *daemon) sources(ready func() bool) *obs.Sources {
	return &obs.Sources{
		Alive: d.engine.Alive, Snapshot: d.snapshot, Traffic: d.talked, Waits: d.waits, Trace: d.timeline, Flight: &d.flight, FirstRank: d.firstRank(), Ranks: d.doc.Ranks, Pod: d.o.pod, Transport: d.transport,
		Ready: ready, Failure: d.fault.Load, Log: d.log, Break: d.breakPeer, End: d.endJob, Drain: d.drainJob,
	}
}

func (d *daemon) talked() (cells []obs.Cell, rest obs.Cell, err error) {
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

// timeline is what has been recorded, in the engine's time.
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

// endJob ends the job for who has started it: its ranks learn why before they are
// ended, and not that others of them have vanished.
func (d *daemon) endJob(why string) {
	d.engine.Fail(&core.Failure{Rank: shm.AnySource, Code: 1, Reason: podlife.TextEnded + why})
}

// drainJob notes that the ranks are told to end: the end of one that has no handler for the
// signal is no failure of its own.
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
		BytesIn: v.LinkBytesIn, BytesOut: v.LinkBytesOut, RefusedConnections: d.mesh.Refused(), Direct: v.Direct, Lent: v.Lent,
	}, nil
}
