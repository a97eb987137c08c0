package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/peers"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

type options struct {
	bootstrap, socket, listen, metrics, flight, logLevel string
	pod                                                  int
	uids                                                 []uint
}

const (
	defaultArena = 256 << 20
	clientEager  = 8 << 10 // payloads up to this size go through one slab slot
)

// daemon is one sidecar with everything it is made of.
type daemon struct {
	o      *options
	doc    *bootstrap.Document
	log    *slog.Logger
	flight obs.Flight
	engine *engine.Engine
	tcp    *tcp.Link
	mesh   *peers.Mesh
	server *session.Server
	fault  atomic.Pointer[obs.Failure]
	dump   sync.WaitGroup // of the flight recorder
}

func run(ctx context.Context, o *options) error {
	d := &daemon{o: o}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	d.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("pod", o.pod)
	var err error
	if d.doc, err = bootstrap.Load(o.bootstrap); err != nil {
		return err
	}
	if o.pod < 0 || o.pod >= len(d.doc.Pods) {
		return fmt.Errorf("--pod %d: the document has pods 0 to %d", o.pod, len(d.doc.Pods)-1)
	}
	if err := d.build(); err != nil {
		return err
	}
	return d.serve(ctx)
}

// build makes the parts, from the seam of the links upwards.
func (d *daemon) build() error {
	self := link.Peer(d.o.pod)
	loop := local.New(self, nil)
	var err error
	if d.tcp, err = tcp.New(nil, len(d.doc.Pods)); err != nil {
		return err
	}
	files := d.doc.TLS
	tlsConfig, err := pki.Config(podFile(files.CAFile, d.o.pod), podFile(files.CertFile, d.o.pod), podFile(files.KeyFile, d.o.pod))
	if err != nil {
		return err
	}
	addresses := make([]string, len(d.doc.Pods))
	for i, p := range d.doc.Pods {
		addresses[i] = p.Address
	}
	listen := d.o.listen
	if listen == "" {
		listen = addresses[self]
	}
	listener, err := listenPeers(listen)
	if err != nil {
		return fmt.Errorf("listening for other sidecars: %w", err)
	}
	d.mesh = peers.New(peers.Config{
		Self: self, Job: d.doc.Job.ID, Addresses: addresses, TLS: tlsConfig, Log: d.log,
		Connected: func(p link.Peer, fd int) { d.engine.Connected(p, fd) },
		Encrypt:   d.doc.Tuning.Encrypt == bootstrap.EncryptTLS,
	}, listener)
	start := time.Now()
	d.engine, err = engine.New(engine.Config{
		Core: d.coreConfig(), Local: loop, Remote: d.tcp, Dialer: d.mesh, Log: d.log, Record: &d.flight,
		Wait: waitPolicy(d.doc.Tuning.Wait), Failed: d.failed,
	}, func() int64 { return int64(time.Since(start)) + 1 })
	if err != nil {
		return errors.Join(err, d.mesh.Close())
	}
	loop.SetMemory(d.engine)
	d.tcp.SetMemory(d.engine)
	return d.listenSessions()
}

// listenPeers opens an address, or takes over an inherited socket.
func listenPeers(where string) (net.Listener, error) {
	number, inherited := strings.CutPrefix(where, "fd:")
	if !inherited {
		return net.Listen("tcp", where)
	}
	fd, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s: want fd:N with a descriptor's number", where)
	}
	f := os.NewFile(uintptr(fd), where)
	l, err := net.FileListener(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is no listening socket: %w", where, err), f.Close())
	}
	return l, f.Close() // the listener has its own
}

func podFile(path string, pod int) string { return strings.ReplaceAll(path, "%d", fmt.Sprint(pod)) }

func (d *daemon) coreConfig() core.Config {
	t := &d.doc.Tuning
	return core.Config{
		Self: link.Peer(d.o.pod), PodOf: d.doc.PodOf(), Pods: len(d.doc.Pods),
		EagerBytes: uint64(t.EagerBytes), FragmentBytes: uint32(t.FragmentBytes), CreditBytes: uint64(t.CreditBytes),
		Heartbeat: time.Duration(t.Heartbeat), DeadAfter: time.Duration(t.DeadAfter), Seed: rand.Uint64(),
		Rendezvous: map[string]core.Rendezvous{"get": core.RendezvousGet, "put": core.RendezvousPut, "stream": core.RendezvousStream}[t.Rendezvous],
	}
}

func waitPolicy(name string) engine.Wait {
	switch name {
	case "poll":
		return engine.Wait{Polls: 1 << 30, Yield: -1}
	case "block":
		return engine.Wait{Yield: time.Nanosecond}
	}
	return engine.Wait{}
}

func (d *daemon) listenSessions() error {
	pod := d.doc.Pods[d.o.pod]
	geometry := segment.DefaultGeometry
	if n := d.doc.Memory.SlabBytes; n != 0 {
		geometry.SlabBytes = int(n)
	}
	arena := uint64(d.doc.Memory.ArenaBytes)
	if arena == 0 {
		arena = defaultArena
	}
	uids := make([]uint32, len(d.o.uids))
	for i, u := range d.o.uids {
		uids[i] = uint32(u)
	}
	var err error
	d.server, err = session.Listen(d.o.socket, session.Config{
		Ranks: uint32(d.doc.Ranks), Pod: uint32(d.o.pod), Pods: uint32(len(d.doc.Pods)),
		First: uint32(pod.FirstRank), Count: uint32(pod.Ranks), ArenaBytes: arena, ArenaMax: 1 << 44,
		Geometry: geometry, EagerBytes: clientEager, UIDs: uids, Log: d.log,
	}, d.engine)
	return err
}

// failed is told once, on the turn: the recorder's contents are the story.
func (d *daemon) failed(f *core.Failure) {
	d.fault.Store(&obs.Failure{Rank: f.Rank, Code: f.Code, Reason: f.Reason, Time: time.Now()})
	d.log.Error("job failed", "cause", f.Error())
	if d.o.flight != "" { // else they are at /debug/flight
		events := d.flight.Snapshot() // here nobody records meanwhile
		d.dump.Go(func() { d.dumpFlight(events) })
	}
}

// dumpFlight writes the recorder's events to the file asked for.
func (d *daemon) dumpFlight(events *obs.Flight) {
	var b bytes.Buffer
	if err := errors.Join(events.Dump(&b), os.WriteFile(d.o.flight, b.Bytes(), 0o600)); err != nil {
		d.log.Error("flight recorder", "cause", err)
	}
}

// serve runs everything until ctx ends, in an order that loses nothing: the
// engine stops last.
func (d *daemon) serve(ctx context.Context) error {
	engineCtx, stopEngine := context.WithCancel(context.Background())
	engineDone := make(chan struct{})
	go func() {
		defer close(engineDone)
		d.engine.Run(engineCtx)
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.server.Serve(ctx) })
	g.Go(d.mesh.Serve)
	if d.o.metrics != "" {
		l, err := listenMetrics(d.o.metrics)
		if err != nil {
			stopEngine()
			<-engineDone
			return errors.Join(err, d.close())
		}
		pod := d.doc.Pods[d.o.pod]
		h := obs.Handler(&obs.Sources{
			Look: d.look, Flight: &d.flight, FirstRank: pod.FirstRank, Ranks: d.doc.Ranks, Pod: d.o.pod,
			Ready: func() bool { return ctx.Err() == nil }, Failure: d.fault.Load, Log: d.log,
			Break: d.breakPeer,
		})
		g.Go(func() error { return obs.Serve(ctx, l, h) })
	}
	d.log.Info("ready", "job", d.doc.Job.Name, "ranks", d.doc.Pods[d.o.pod].Ranks, "address", d.doc.Pods[d.o.pod].Address, "encrypt", d.doc.Tuning.Encrypt == bootstrap.EncryptTLS)
	g.Go(func() error {
		<-ctx.Done()
		return errors.Join(d.server.Close(), d.mesh.Close())
	})
	err := g.Wait()
	stopEngine()
	<-engineDone
	err = errors.Join(err, d.engine.Close())
	d.mesh.Drain() // of what the engine has just let go
	d.dump.Wait()
	return err
}

func (d *daemon) breakPeer(peer int) error {
	if peer < 0 || peer >= len(d.doc.Pods) || peer == d.o.pod {
		return fmt.Errorf("%w: pod %d of %d, seen from pod %d", obs.ErrNoPeer, peer, len(d.doc.Pods), d.o.pod)
	}
	return d.engine.Break(link.Peer(peer))
}

func (d *daemon) close() error {
	err := errors.Join(d.server.Close(), d.mesh.Close(), d.engine.Close())
	d.mesh.Drain()
	return err
}

func listenMetrics(addr string) (net.Listener, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	return l, nil
}

func (d *daemon) look() (obs.Picture, error) {
	v, err := d.engine.View()
	if err != nil {
		return obs.Picture{}, err
	}
	return obs.Picture{
		Core: v.Core, Busy: v.Turns.Busy, Idle: v.Turns.Idle, Yields: v.Turns.Yields, Sleeps: v.Turns.Sleeps,
		BytesIn: v.LinkBytesIn, BytesOut: v.LinkBytesOut, RefusedConnections: d.mesh.Refused(),
	}, nil
}
