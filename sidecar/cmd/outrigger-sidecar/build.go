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
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
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
	clientEager = 8 << 10 // payloads of at most this size go through one slab slot
	// defaultStart bounds the wait for peers to start. A cluster starts pods over minutes:
	// it pulls images and adds nodes.
	defaultStart = 10 * time.Minute
	// issuedStart is the same bound for a job with an issuer: the longest time that a
	// document may have.
	issuedStart = 7 * 24 * time.Hour
)

// build creates the parts of the daemon: links, mesh, engine and session server.
func (d *daemon) build(tlsConfig *tls.Config) error {
	self := link.Peer(d.o.pod)
	loop := local.New(self, nil)
	loop.SetCopies(d.copies)
	addresses := make([]string, len(d.doc.Pods))
	for i, p := range d.doc.Pods {
		addresses[i] = p.Address
	}
	listen := d.listenAddress()
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
		Early:     silenceBound(listen, time.Duration(d.doc.Tuning.StartWithin)),
		Hung:      d.hung(),
		Encrypt:   d.doc.Tuning.Encrypt == bootstrap.EncryptTLS,
		Direct:    d.direct(),
		Protocols: d.protocols(),
	}, listener)
	var recorder *trace.Recorder
	if d.o.trace > 0 {
		recorder = trace.NewRecorder(d.o.trace)
	}
	if n := threadsMin + d.helpers(); runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
	d.begun = time.Now()
	d.engine, err = engine.New(engine.Config{
		Core: d.coreConfig(), Local: loop, Remote: d.remote, Copies: d.copies, Dialer: d.mesh, Log: d.log, Record: &d.flight, Trace: recorder,
		Wait: waitPolicy(d.doc.Tuning.Wait, wake.Processors() >= d.sharers()), MPI: !d.o.noPMI, Failed: d.jobFailed, Heard: d.awaitReports,
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

// inheritedMark is the prefix of a --listen that names a descriptor.
const inheritedMark = "fd:"

// inheritedStart bounds the time in which a peer with an inherited socket may be silent.
// The kernel accepts connections on that socket before the sidecar runs. One minute: all
// sidecars of the machine start at once, and the machine may be busy.
const inheritedStart = time.Minute

// silentStart is the same bound for a sidecar that opens its socket itself. Ten minutes: on
// a node where many pods start at once it may listen and get no processor for a handshake.
const silentStart = 10 * time.Minute

// silenceBound returns the time for which a peer that was never reached may accept
// connections and send nothing; 0 means the default. startWithin is the document's time for
// peers to be reached. A job that starts slowly on a busy node has not failed: the operator,
// whose documents have startWithin, limits the start by pendingDeadlineSeconds. A program
// that passes a listening socket to this sidecar has started the peers as well.
func silenceBound(listen string, startWithin time.Duration) time.Duration {
	if strings.HasPrefix(listen, inheritedMark) {
		return inheritedStart
	}
	return min(startWithin, silentStart)
}

// hungAfter is the time for which a sidecar of a cluster may be silent while its node answers. A
// node that starts many pods may give it no processor for longer than DeadAfter.
const hungAfter = time.Minute

// hung returns hungAfter. It returns 0, for the value of deadAfter, if the document sets that, and
// if a program of this machine has started the peers: that program sees by itself whether they run.
func (d *daemon) hung() time.Duration {
	if d.doc.Tuning.DeadAfter != 0 || strings.HasPrefix(d.listenAddress(), inheritedMark) {
		return 0
	}
	return hungAfter
}

// listenAddress returns where the sidecar listens for its peers, as listenPeers takes it.
func (d *daemon) listenAddress() string { return cmp.Or(d.o.listen, d.doc.Pods[d.o.pod].Address) }

// listenPeers listens on an address, or uses an inherited socket.
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
	return l, f.Close() // the listener has a duplicate
}

// credentials returns the TLS configuration with the key and certificate of the document's
// files, or, if the document has an issuer, with a new key and a certificate from it.
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
	err = d.start.retry(ctx, "a certificate from "+t.Issuer.URL, refused, func(ctx context.Context) (err error) {
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

// names returns the resolver of peers' addresses: DNS, or the issuer if the document says
// so.
func (d *daemon) names() (*dns.Resolver, error) {
	if d.resolver != nil {
		return d.resolver, nil
	}
	names := new(dns.Resolver)
	if i := d.doc.TLS.Issuer; i != nil && i.AddressesURL != "" {
		all, err := certify.NewAddresses(i, d.doc.Pods)
		if err != nil {
			return nil, err
		}
		names.Lookup = all.Lookup
	}
	d.resolver = names
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
		Spare: d.spare(), Collectives: rules(t.Collectives), Schedules: coll.Schedules,
	}
	c.CreditFirst, c.CreditBudget = credit(d.sizes().Credit, c.Pods, c.Spare)
	c.StartWithin, c.HungAfter = cmp.Or(c.StartWithin, d.startWithin()), d.hung()
	c.Answers = func(p link.Peer) bool { return d.sockets.Answers(p) || d.mesh.Answers(p) }
	return c
}

// rules returns the rules of a document, whose words Validate has checked.
func rules(list []bootstrap.CollectiveRule) (rules []coll.Rule) {
	for _, r := range list {
		kind, _ := coll.ParseKind(r.Collective) // NewTable refuses the 0 of an unknown word
		algorithm, _ := coll.ParseAlgorithm(r.Algorithm)
		rules = append(rules, coll.Rule{Kind: kind, Ranks: r.Ranks, Pods: r.Pods, Bytes: r.MaxBytes, Algorithm: algorithm})
	}
	return rules
}

// startWithin returns the time that peers may take to start if the document has none. In a
// job with an issuer it is the maximum: an issuer that does not answer delays a job and must
// not fail it.
func (d *daemon) startWithin() time.Duration {
	if d.doc.TLS.Issuer != nil {
		return issuedStart
	}
	return defaultStart
}

// pollFor is the time for which an engine with a processor of its own polls before it
// yields. Ranks that exchange small messages post their next request within it. After a
// longer pause the cost of a yield is negligible, and a rank that has lost its processor
// gets this one.
const pollFor = 50 * time.Microsecond

// sharedYield is the time for which an engine on shared processors yields before it sleeps.
// A longer time takes as long for the ranks, and costs up to twice as many context switches
// for each message (decision 019).
const sharedYield = 20 * time.Microsecond

// threadsMin is the minimum of GOMAXPROCS, also for a sidecar with one processor. With
// GOMAXPROCS=1 the runtime's monitor, which ticks every 20 us, takes the P from a thread in
// a system call or a call of libibverbs, and starts another thread for it, which finds no
// work. A thread that copies has a turn in Go's scheduler for itself.
const threadsMin = 2

// waitPolicy returns how the engine waits; alone means that each process of the job on this
// machine has a processor.
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
		return engine.Wait{Yield: sharedYield}
	}
	return engine.Wait{} // "yield"
}

// sharers returns the number of the job's processes that share this sidecar's processors:
// the sidecars and ranks of the pods whose addresses have the same host. Processes of other
// jobs are unknown to it.
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

// sizes returns the input of the memory formula about the sidecar itself.
func (d *daemon) sizes() memory.Sizes {
	return memory.Sizes{
		Credit: cmp.Or(d.doc.Tuning.CreditBytes, memory.CreditDefault), Encrypted: d.doc.Tuning.Encrypt == bootstrap.EncryptTLS,
		Registers: d.transport == bootstrap.TransportRDMA, MPI: !d.o.noPMI, Ether: d.transport == bootstrap.TransportEther, Raw: d.ether != nil && d.ether.Raw(),
	}
}

// unlimited is the spare memory of a sidecar that no control group limits, 1 TiB: more than
// its ranks and peers can make it use.
const unlimited = 1 << 40

// spare returns the memory that the sidecar has beyond the formula.
func (d *daemon) spare() int64 {
	pools, err := session.MemoryPools()
	if err != nil {
		return 0 // the first session reports the error
	}
	limit := uint64(math.MaxUint64)
	for _, p := range pools {
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

// credit returns the window of each peer at first, and the bytes by which all windows together may
// be wider. Memory beyond the formula is for wider windows.
func credit(widest int64, pods int, spare int64) (first, budget uint64) {
	least := memory.CreditFirst(widest, pods)
	return uint64(least), uint64(memory.CreditBudget(widest) - int64(pods)*(least-memory.CreditLeast) + memory.CreditOfSpare(spare))
}

// limitHeap sets the memory limit of Go's runtime if a control group limits the sidecar, so
// that the collector runs more often near the limit and the kernel does not kill the sidecar
// for uncollected garbage.
func limitHeap(bytes, spare int64) {
	if spare < unlimited && debug.SetMemoryLimit(-1) == math.MaxInt64 { // else GOMEMLIMIT is set
		debug.SetMemoryLimit(bytes + spare - memory.CreditOfSpare(spare)) // messages are not in the heap
	}
}

// sessionConfig returns the configuration of the session server: the users that may attach,
// and the memory of each rank.
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
	uids, anyUser, err := d.o.appUsers()
	open, why := d.exposure()
	return session.Config{
		Ranks: uint32(d.doc.Ranks), Pod: uint32(d.o.pod), Pods: uint32(len(d.doc.Pods)),
		First: uint32(pod.FirstRank), Count: uint32(pod.Ranks), ArenaBytes: arena, ArenaMax: 1 << 44,
		Geometry: geometry, EagerBytes: clientEager, Sharers: uint32(d.sharers()), UIDs: uids, AnyUID: anyUser, Log: d.log,
		OwnBytes: uint64(own), NoMemory: d.noMemory, Open: open, NotOpen: why,
	}, err
}
