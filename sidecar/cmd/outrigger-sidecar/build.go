package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/certify"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/dns"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/peers"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

const (
	clientEager = 8 << 10 // payloads up to this size go through one slab slot
	// A cluster starts pods over minutes: images are pulled, nodes are added.
	defaultStart = 10 * time.Minute
	issuedStart  = 7 * 24 * time.Hour // the longest that a document may say
)

// build makes the parts, from the seam of the links upwards.
func (d *daemon) build(tlsConfig *tls.Config) error {
	self := link.Peer(d.o.pod)
	loop := local.New(self, nil)
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
	names, err := d.names()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	d.mesh = peers.New(peers.Config{
		Self: self, Job: d.doc.Job.ID, Addresses: addresses, Names: names, TLS: tlsConfig, Log: d.log,
		Connected: func(p link.Peer, fd int) { d.engine.Connected(p, fd) },
		Failed:    func(p link.Peer, cause error) { d.engine.ConnectFailed(p, cause) },
		Lost:      func(p link.Peer, cause error) { d.engine.PeerLost(p, cause) },
		Silence:   time.Duration(d.doc.Tuning.DeadAfter) * 3 / 2,
		Early:     early(listen, time.Duration(d.doc.Tuning.StartWithin)),
		Encrypt:   d.doc.Tuning.Encrypt == bootstrap.EncryptTLS,
		Direct:    d.direct(),
		Protocols: d.beside(),
	}, listener)
	var recorder *trace.Recorder
	if d.o.trace > 0 {
		recorder = trace.NewRecorder(d.o.trace)
	}
	if runtime.GOMAXPROCS(0) < threadsMin {
		runtime.GOMAXPROCS(threadsMin)
	}
	d.begun = time.Now()
	d.engine, err = engine.New(engine.Config{
		Core: d.coreConfig(), Local: loop, Remote: d.remote, Dialer: d.mesh, Log: d.log, Record: &d.flight, Trace: recorder,
		Wait: waitPolicy(d.doc.Tuning.Wait, wake.Processors() >= d.sharers()), MPI: !d.o.noPMI, Failed: d.failed, Heard: d.heard,
	}, func() int64 { return int64(time.Since(d.begun)) + 1 })
	if err != nil {
		return errors.Join(err, d.mesh.Close())
	}
	loop.SetMemory(d.engine)
	d.remote.SetMemory(d.engine)
	cfg, err := d.sessionConfig()
	if err != nil {
		return errors.Join(err, d.mesh.Close(), d.engine.Close())
	}
	limitHeap(d.sizes().Heap(int(cfg.Count), d.doc.Ranks, len(d.doc.Pods)), d.spare())
	d.server = session.NewServer(d.sessions, cfg, d.engine)
	return nil
}

// inheritedMark begins --listen with a descriptor.
const inheritedMark = "fd:"

// startsWithin is how long a sidecar may take to start whose socket was opened for it: the
// system accepts connections there from the first moment. All of a machine's start at
// once, and it may have much else to do.
const startsWithin = time.Minute

// silentStart is the same for a sidecar that opens its socket itself, on a node where many
// pods start at once: it listens, and may not get a processor for a handshake.
const silentStart = 10 * time.Minute

// early is for how long a peer that was never reached may accept connections and say
// nothing, in a job whose document gives peers startWithin to be reached; 0: the default.
// A job that starts is slow on a busy node, and has not failed: the operator, whose documents
// give that time, limits the start by pendingDeadlineSeconds. A program that hands a listening
// socket to this sidecar has started its peers, too.
func early(listen string, startWithin time.Duration) time.Duration {
	if strings.HasPrefix(listen, inheritedMark) {
		return startsWithin
	}
	return min(startWithin, silentStart)
}

// listenPeers opens an address, or takes over an inherited socket.
func listenPeers(where string) (net.Listener, error) {
	number, inherited := strings.CutPrefix(where, inheritedMark)
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

// credentials are those of the document's files, or a key of this process's own
// with a certificate from the issuer.
func (d *daemon) credentials(ctx context.Context) (*tls.Config, error) {
	t := &d.doc.TLS
	if t.Issuer == nil {
		return pki.Config(podFile(t.CAFile, d.o.pod), podFile(t.CertFile, d.o.pod), podFile(t.KeyFile, d.o.pod))
	}
	applicant, err := certify.New(t.Issuer)
	if err != nil {
		return nil, err
	}
	var cert tls.Certificate
	refused := func(err error) bool { return errors.Is(err, certify.ErrRefused) }
	err = d.start.until(ctx, "a certificate from "+t.Issuer.URL, refused, func(ctx context.Context) (err error) {
		cert, err = applicant.Obtain(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	c, err := pki.ConfigOf([]byte(t.CA), "tls.ca of the job document", cert)
	if err != nil {
		return nil, err
	}
	return c, pki.Belongs(cert, []byte(t.CA), d.doc.Job.ID, d.o.pod)
}

// names finds the addresses of peers: by DNS, or by the issuer where the document says so.
func (d *daemon) names() (*dns.Resolver, error) {
	names := new(dns.Resolver)
	if i := d.doc.TLS.Issuer; i != nil && i.AddressesURL != "" {
		all, err := certify.NewAddresses(i, d.doc.Pods)
		if err != nil {
			return nil, err
		}
		names.Lookup = all.Lookup
	}
	return names, nil
}

func podFile(path string, pod int) string { return strings.ReplaceAll(path, "%d", fmt.Sprint(pod)) }

func (d *daemon) coreConfig() core.Config {
	t := &d.doc.Tuning
	c := core.Config{
		Self: link.Peer(d.o.pod), PodOf: d.doc.PodOf(), Pods: len(d.doc.Pods),
		EagerBytes: uint64(t.EagerBytes), FragmentBytes: uint32(t.FragmentBytes), CreditBytes: uint64(t.CreditBytes),
		Heartbeat: time.Duration(t.Heartbeat), DeadAfter: time.Duration(t.DeadAfter), StartWithin: time.Duration(t.StartWithin), Seed: rand.Uint64(),
		Rendezvous: rendezvous.Named(t.Rendezvous), Channel: eagerring.Named(t.Channel),
		Spare: d.spare(),
	}
	c.StartWithin = cmp.Or(c.StartWithin, d.startWithin())
	return c
}

// startWithin is how long peers may take to start where the document does not say. One that
// waits for its certificate is waited for as long as the operator's documents say: an issuer
// that is away delays a job, and fails none.
func (d *daemon) startWithin() time.Duration {
	if d.doc.TLS.Issuer != nil {
		return issuedStart
	}
	return defaultStart
}

// pollFor is how long an engine with a processor of its own polls before it
// yields. Ranks that exchange small messages come back sooner; after a longer
// pause a yield costs nothing that counts, and gives the processor to a rank that
// has lost its own.
const pollFor = 50 * time.Microsecond

// threadsMin is how many threads run Go code beside each other at least, also where the
// sidecar has one processor, of its own or not. With one, the runtime takes away what a
// thread needs to go on from each system call or call of libibverbs that one of its ticks
// of 20 us meets, and starts another thread for it, which finds nothing to do.
const threadsMin = 2

// waitPolicy is how the engine waits; alone says that each process of the job on
// this machine has a processor.
func waitPolicy(name string, alone bool) engine.Wait {
	switch name {
	case "poll":
		return engine.Wait{Polls: 1 << 30, Yield: -1}
	case "block":
		return engine.Wait{Yield: time.Nanosecond}
	case "":
		if alone {
			return engine.Wait{Poll: pollFor}
		}
	}
	return engine.Wait{}
}

// sharers counts the job's processes that share this sidecar's processors, as far
// as it can know: the sidecars and ranks of the pods with its host's name.
func (d *daemon) sharers() int {
	n := 0
	for _, p := range d.doc.Pods {
		if host(p.Address) == host(d.doc.Pods[d.o.pod].Address) {
			n += 1 + p.Ranks
		}
	}
	return n
}

func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return h
}

// sizes are what the formula wants to know of the sidecar itself.
func (d *daemon) sizes() memory.Sizes {
	return memory.Sizes{
		Credit: cmp.Or(d.doc.Tuning.CreditBytes, memory.CreditDefault), Encrypted: d.doc.Tuning.Encrypt == bootstrap.EncryptTLS,
		Registers: d.transport == bootstrap.TransportRDMA, MPI: !d.o.noPMI,
	}
}

// unlimited is the memory beyond the formula of a sidecar that no control group limits: more than
// its ranks and peers can make it keep.
const unlimited = 1 << 40

// spare is how much more memory the sidecar has than the formula wants.
func (d *daemon) spare() int64 {
	places, err := session.MemoryPools()
	if err != nil {
		return 0 // a session says why
	}
	limit := uint64(math.MaxUint64)
	for _, p := range places {
		if p.Limit != 0 {
			limit = min(limit, p.Limit)
		}
	}
	if limit == math.MaxUint64 {
		return unlimited
	}
	s, pod := d.sizes(), d.doc.Pods[d.o.pod]
	s.Arena, s.Slab = cmp.Or(d.doc.Memory.ArenaBytes, memory.ArenaDefault), cmp.Or(d.doc.Memory.SlabBytes, memory.SlabDefault)
	return min(max(int64(min(limit, unlimited))-s.Need(pod.Ranks, d.doc.Ranks, len(d.doc.Pods)), 0), unlimited-1)
}

// limitHeap tells Go's runtime what it may take, where a control group would otherwise end the
// sidecar for its garbage: the collector runs more often near that.
func limitHeap(bytes, spare int64) {
	if spare < unlimited && debug.SetMemoryLimit(-1) == math.MaxInt64 { // else GOMEMLIMIT has been set
		debug.SetMemoryLimit(bytes + spare)
	}
}

// sessionConfig says which users may attach, and with how much memory.
func (d *daemon) sessionConfig() (session.Config, error) {
	pod := d.doc.Pods[d.o.pod]
	geometry := segment.DefaultGeometry
	if n := d.doc.Memory.SlabBytes; n != 0 {
		geometry.SlabBytes = int(n)
	}
	arena := uint64(d.doc.Memory.ArenaBytes)
	if arena == 0 {
		arena = memory.ArenaDefault
	}
	own := d.sizes().Own(pod.Ranks, d.doc.Ranks, len(d.doc.Pods))
	uids, everybody, err := d.o.mayAttach()
	open, why := d.exposure()
	return session.Config{
		Ranks: uint32(d.doc.Ranks), Pod: uint32(d.o.pod), Pods: uint32(len(d.doc.Pods)),
		First: uint32(pod.FirstRank), Count: uint32(pod.Ranks), ArenaBytes: arena, ArenaMax: 1 << 44,
		Geometry: geometry, EagerBytes: clientEager, Sharers: uint32(d.sharers()), UIDs: uids, AnyUID: everybody, Log: d.log,
		OwnBytes: uint64(own), NoMemory: d.noMemory, Open: open, NotOpen: why,
	}, err
}
