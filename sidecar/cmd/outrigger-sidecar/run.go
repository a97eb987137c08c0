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
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/node"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/verbs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/peers"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/pmi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// daemon is one sidecar with everything it is made of.
type daemon struct {
	o           *options
	doc         *bootstrap.Document
	log         *slog.Logger
	words       lastWords
	flight      obs.Flight
	begun       time.Time // zero of the engine's clock
	engine      *engine.Engine
	remote      remote
	verbs       *verbs.Link // nil: no data goes by RDMA
	node        *node.Link  // nil: no data goes by shared memory of this machine
	transport   string
	mesh        *peers.Mesh
	server      *session.Server
	tree        *pmi.Tree
	meetings    *pmi.Meetings
	pmi         *pmi.Server
	sessions    *net.UnixListener // of server
	launchers   *net.UnixListener // of pmi
	pmiListener *net.UnixListener // of pmi; nil: no program of this pod uses an MPI
	start       *start
	watch       []watcher
	fault       atomic.Pointer[obs.Failure]
	ending      atomic.Bool    // what fails from now on does so because this sidecar ends
	told        sync.WaitGroup // of what is written when the job fails
}

func run(ctx context.Context, o *options) error {
	d := &daemon{o: o}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	d.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("pod", o.pod)
	if err := d.words.open(o); err != nil {
		return err
	}
	err := d.live(ctx)
	if unsaid := d.words.last(err, d.firstRank()); unsaid != nil {
		d.log.Warn("last words", "cause", unsaid) // a full disk makes no sidecar a failed one
	}
	return err
}

// live is the daemon's life from its document to its end.
func (d *daemon) live(ctx context.Context) error {
	var err error
	if d.doc, err = bootstrap.Load(d.o.bootstrap); err != nil {
		return err
	}
	if d.o.pod < 0 || d.o.pod >= len(d.doc.Pods) {
		return fmt.Errorf("--pod %d: the document has pods 0 to %d", d.o.pod, len(d.doc.Pods)-1)
	}
	if err := d.words.first(d.o); errors.Is(err, errRestarted) {
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
		err = errors.Join(err, closed(w.listener)) // of those that were not served yet
	}
	return errors.Join(err, d.words.unclaim(d.o)) // it has not joined: another start may
}

// startEnded is the error of a sidecar that did not come to join its job. One that was told
// to end while it waited has failed nothing.
func (d *daemon) startEnded(asked context.Context, err error) error {
	if asked.Err() == nil {
		return err
	}
	d.log.Info("ended before it joined the job", "cause", err)
	return nil
}

// join waits for all that a sidecar needs outside of its pod before it can take part, and
// makes its parts. A server that has failed ends the wait.
func (d *daemon) join(asked, life context.Context) error {
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	d.lockMemory(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := d.chooseTransport(ctx); err != nil {
		return err
	}
	tlsConfig, err := d.credentials(ctx)
	if err != nil {
		return err
	}
	if err := d.words.claim(d.o); err != nil {
		return err
	}
	return d.build(tlsConfig)
}

// firstRank is the first rank of this pod, or podlife.NoRank when the document
// does not tell.
func (d *daemon) firstRank() int {
	if d.doc == nil || d.o.pod < 0 || d.o.pod >= len(d.doc.Pods) {
		return podlife.NoRank
	}
	return d.doc.Pods[d.o.pod].FirstRank
}
