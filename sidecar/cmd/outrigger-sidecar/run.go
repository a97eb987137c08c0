package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/dns"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/ether"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/node"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/verbs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/peers"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/pmi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// daemon is a sidecar: the parts that it consists of, and its state.
type daemon struct {
	o           *options
	doc         *bootstrap.Document
	log         *slog.Logger
	message     termination
	flight      obs.Flight
	begun       time.Time // zero of the engine's clock
	engine      *engine.Engine
	remote      remote
	sockets     *tcp.Link   // TCP connections to peers, whatever else carries data
	verbs       *verbs.Link // nil: RDMA is not used
	node        *node.Link  // nil: shared memory of this machine is not used
	ether       *ether.Link // nil: packets are not used
	copies      *copyeng.Copies
	transport   string
	resolver    *dns.Resolver // of peers' addresses; nil: not made yet
	mesh        *peers.Mesh
	server      *session.Server
	tree        *pmi.Tree
	meetings    *pmi.Meetings
	pmi         *pmi.Server
	sessions    *net.UnixListener // listener of server
	beat        *session.Beat     // shows clients that wait that this process runs; nil: not started
	launchers   *net.UnixListener // listener of pmi for launchers
	pmiListener *net.UnixListener // listener of pmi for ranks; nil: no program of this pod uses an MPI
	start       *start
	watch       []watcher
	failure     atomic.Pointer[obs.Failure]
	ending      atomic.Bool    // the sidecar ends: later failures are a consequence of that
	writers     sync.WaitGroup // goroutines that write files because the job has failed
}

// run runs the sidecar to its end and writes its termination message.
func run(ctx context.Context, o *options) error {
	d := &daemon{o: o}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	d.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("pod", o.pod)
	if err := d.message.open(o); err != nil {
		return err
	}
	err := d.startAndServe(ctx)
	if unwritten := d.message.finish(err, d.firstRank()); unwritten != nil {
		d.log.Warn("termination message", "cause", unwritten) // a full disk is no failure of the job
	}
	return err
}

// startAndServe loads the job document, joins the job and serves until ctx ends.
func (d *daemon) startAndServe(ctx context.Context) error {
	var err error
	if d.doc, err = bootstrap.Load(d.o.bootstrap); err != nil {
		return err
	}
	if d.o.pod < 0 || d.o.pod >= len(d.doc.Pods) {
		return fmt.Errorf("--pod %d: the document has pods 0 to %d", d.o.pod, len(d.doc.Pods)-1)
	}
	if err := d.message.checkMarker(d.o); errors.Is(err, errRestarted) {
		return d.refuse(ctx, err)
	} else if err != nil {
		return err
	}
	d.start = newStart(d.log)
	life, end := context.WithCancel(context.Background())
	defer end()
	servers, life := errgroup.WithContext(life)
	err = d.open()
	if err == nil {
		d.serveStart(servers, life)
		err = d.join(ctx, life)
	}
	if err == nil {
		return d.serve(ctx, servers, life, end)
	}
	end()
	err = errors.Join(d.startEnded(ctx, err), d.closeStart(), servers.Wait())
	for _, w := range d.watch {
		err = errors.Join(err, closeListener(w.listener)) // those that were not served yet
	}
	return errors.Join(err, d.message.removeMarker(d.o)) // it has not joined: another sidecar may
}

// startEnded returns the error of a sidecar that did not join its job. It is nil if the
// sidecar was told to end while it waited.
func (d *daemon) startEnded(asked context.Context, err error) error {
	if asked.Err() == nil {
		return err
	}
	d.log.Info("ended before it joined the job", "cause", err)
	return nil
}

// join waits for all that the sidecar needs from outside of its pod and builds its parts. It
// returns early if life ends because a server has failed.
func (d *daemon) join(asked, life context.Context) error {
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	d.lockMemory(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.copies = d.newCopies()
	if err := d.chooseTransport(ctx); err != nil {
		return err
	}
	tlsConfig, err := d.credentials(ctx)
	if err != nil {
		return err
	}
	if err := d.message.createMarker(d.o); err != nil {
		return err
	}
	return d.build(tlsConfig)
}

// firstRank returns the first rank of this pod, or podlife.NoRank if there is no document or
// it does not have the pod.
func (d *daemon) firstRank() int {
	if d.doc == nil || d.o.pod < 0 || d.o.pod >= len(d.doc.Pods) {
		return podlife.NoRank
	}
	return d.doc.Pods[d.o.pod].FirstRank
}
