package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/ether"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/node"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/verbs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/peers"
)

// exitConfig is the exit code of a failure that another start will not change: EX_CONFIG of
// sysexits(3).
const exitConfig = 78

// errTransport is wrapped by the errors of chooseTransport about a missing transport.
var errTransport = errors.New("the job requires a transport that this sidecar does not have")

// remote is the link to the other sidecars.
type remote interface {
	link.Link
	SetMemory(link.Memory)
}

// chooseTransport opens the link that carries data between pods. If the job requires a
// transport that this pod does not have, it returns an error: over another one the job would
// run slower by orders of magnitude without a sign of the cause.
func (d *daemon) chooseTransport(ctx context.Context) error {
	sockets, err := tcp.New(nil, len(d.doc.Pods))
	if err != nil {
		return err
	}
	d.sockets, d.remote, d.transport = sockets, sockets, bootstrap.TransportTCP
	t := &d.doc.Tuning
	if t.Transport == bootstrap.TransportEther {
		return d.openEther(ctx, sockets)
	}
	mayTCP := d.mayTCP()
	mayRDMA := t.Transport != bootstrap.TransportTCP && t.Transport != bootstrap.TransportNode && (len(t.Require) == 0 || slices.Contains(t.Require, bootstrap.TransportRDMA))
	if !mayRDMA {
		return d.shareMachine(sockets)
	}
	hcas, why := grantedHCAs(os.Environ())
	if t.Encrypt == bootstrap.EncryptTLS {
		why = append(why, "tuning.encrypt is tls, and data over an RDMA device is not encrypted")
	}
	if !verbs.Built {
		why = append(why, verbs.ErrBuild.Error())
	}
	if len(why) == 0 {
		if d.verbs, err = d.openVerbs(sockets, hcas, !mayTCP); err == nil {
			d.remote, d.transport = d.verbs, bootstrap.TransportRDMA
			p := d.verbs.Port()
			d.log.Info("RDMA device opened", "device", p.Device, "port", p.Number, "fabric", p.Fabric.String(), "gidIndex", p.Index, "gid", p.GID, "numa", p.NUMA, "Mbit/s", p.Rate)
			return nil
		}
		why = append(why, err.Error())
	}
	cause := strings.Join(why, "; ")
	if !mayTCP {
		return errors.Join(fmt.Errorf("%w: tuning.require is %q, and data between pods would use %s: %s", errTransport, t.Require, bootstrap.TransportTCP, cause), sockets.Close())
	}
	level := slog.LevelDebug // RDMA was not asked for
	if len(hcas) > 0 || t.Transport == bootstrap.TransportRDMA {
		level = slog.LevelWarn
	}
	err = d.shareMachine(sockets)
	d.log.Log(ctx, level, podlife.TextNoRDMA, "transport", d.transport, "cause", cause)
	return err
}

// shareMachine opens the link to other pods on this machine by shared memory, if there are
// such pods and the job allows it.
func (d *daemon) shareMachine(sockets *tcp.Link) error {
	t := &d.doc.Tuning
	may := t.Transport != bootstrap.TransportTCP && len(t.Require) == 0 && t.Encrypt != bootstrap.EncryptTLS
	if !may || d.neighbours() == 0 {
		return nil
	}
	l, err := node.New(node.Config{Peers: len(d.doc.Pods), Stream: sockets, Log: d.log, Copies: d.copies}, nil)
	if err != nil {
		d.log.Warn("data to pods of this machine uses tcp as well", "cause", err)
		return nil
	}
	d.node, d.remote, d.transport = l, l, bootstrap.TransportNode
	return nil
}

// addressUDP returns the UDP address that belongs to a TCP address as listenPeers takes it.
// If that has a name, UDP packets to all addresses of this machine are accepted.
func addressUDP(listen string) (netip.AddrPort, error) {
	if number, inherited := strings.CutPrefix(listen, inheritedMark); inherited {
		fd, err := strconv.Atoi(number)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%s: want fd:N with a descriptor's number", listen)
		}
		return addressOfSocket(fd)
	}
	host, number, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address for UDP: %w", err)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address for UDP: port %s: %w", number, err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ip = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

func addressOfSocket(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address of descriptor %d: %w", fd, err)
	}
	switch x := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(x.Addr), uint16(x.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(x.Addr), uint16(x.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("descriptor %d has an address of type %T, want one of TCP", fd, sa)
}

// etherSilence is how long the packets of a connection may be lost before another one is
// made. The core notices a peer that is silent earlier, by default.
const etherSilence = 10 * time.Second

// textNoRaw is logged if this container has an Ethernet device that cannot be used.
const textNoRaw = "small messages go by UDP, not by raw Ethernet, and by TCP to pods that send raw Ethernet"

// trialSlack is the least DeadAfter with which connections are compared with pulls. While they are, up
// to 2 seconds, no heartbeat of the peer is read.
const trialSlack = 4 * time.Second

// measures reports whether connections are compared with pulls when they are made.
func measures(t *bootstrap.Tuning) bool {
	return t.LargePath == bootstrap.LargeAuto && (t.DeadAfter == 0 || time.Duration(t.DeadAfter) >= trialSlack)
}

// openEther opens the link whose small messages go by raw Ethernet if this container has a
// device for that, and otherwise by UDP.
func (d *daemon) openEther(ctx context.Context, sockets *tcp.Link) error {
	names, err := d.names()
	if err != nil {
		return errors.Join(err, sockets.Close())
	}
	listen, err := addressUDP(d.listenAddress())
	if err != nil {
		return errors.Join(err, sockets.Close())
	}
	raw, err := d.packetSocket(ctx)
	if err != nil {
		d.log.Warn(textNoRaw, "cause", err)
	}
	begun := time.Now()
	cfg := ether.Config{
		Self: link.Peer(d.o.pod), Peers: len(d.doc.Pods), Listen: listen, Resolve: names.Addresses,
		Pull: pulls(&d.doc.Tuning), Measure: measures(&d.doc.Tuning), Encrypt: d.doc.Tuning.Encrypt == bootstrap.EncryptTLS, Raw: raw, Stream: sockets, Log: d.log, Clock: func() int64 { return int64(time.Since(begun)) + 1 },
		Silence: int64(max(etherSilence, time.Duration(d.doc.Tuning.DeadAfter))),
	}
	for _, p := range d.doc.Pods {
		cfg.Addresses = append(cfg.Addresses, p.Address)
	}
	l, err := ether.New(cfg, nil)
	if err != nil && raw != nil {
		d.log.Warn(textNoRaw, "cause", err)
		cfg.Raw = nil
		l, err = ether.New(cfg, nil)
	}
	if err != nil {
		return errors.Join(err, sockets.Close())
	}
	d.ether, d.remote, d.transport = l, l, bootstrap.TransportEther
	return nil
}

// pulls reports whether large messages are pulled by packets, without a measurement.
func pulls(t *bootstrap.Tuning) bool {
	if t.LargePath == "" {
		return slices.Contains([]string{"getcqe", "get"}, t.Rendezvous)
	}
	return t.LargePath == bootstrap.LargePull
}

// neighbours returns the number of other pods whose addresses have the host of this one's.
func (d *daemon) neighbours() (n int) {
	for i, p := range d.doc.Pods {
		if i != d.o.pod && host(p.Address) == host(d.doc.Pods[d.o.pod].Address) {
			n++
		}
	}
	return n
}

// grantedHCAs returns the devices that the device plugin has allocated to this container, or
// the reason why there are none.
func grantedHCAs(environ []string) (hcas []verbs.Granted, why []string) {
	list, err := devices.FromEnv(environ)
	if err != nil {
		return nil, []string{err.Error()}
	}
	for _, x := range list {
		if x.Kind == "hca" {
			hcas = append(hcas, verbs.Granted{Name: x.Name, NUMA: x.NUMA})
		}
	}
	if len(hcas) == 0 {
		why = []string{"no HCA is allocated to this container: give it a limit for " + names.ResourceHCA + ", on nodes whose device plugin offers it"}
	}
	return hcas, why
}

func (d *daemon) openVerbs(sockets *tcp.Link, hcas []verbs.Granted, required bool) (*verbs.Link, error) {
	cfg := verbs.Config{
		Peers: len(d.doc.Pods), Ranks: d.doc.Pods[d.o.pod].Ranks, Stream: sockets, Log: d.log, InOrder: d.doc.Tuning.InOrder,
		PinnedBytes: uint64(d.doc.Memory.PinnedBytes), Reuse: d.doc.Tuning.Reuse, Receives: d.doc.Tuning.Receives,
		Lends:  d.doc.Tuning.Exposure == bootstrap.ExposureAllowed,
		InTurn: func(do func()) error { return d.engine.InTurn(do) }, // d.engine is set later
	}
	if required {
		cfg.Lost = func(cause error) { d.engine.Fail(&core.Failure{Rank: shm.AnySource, Code: 1, Reason: cause.Error()}) }
	}
	return verbs.Open(cfg, nil, hcas, d.doc.Pods[d.o.pod].Address)
}

// direct returns how peers are connected in addition to their sockets, by RDMA, shared
// memory or packets, or nil if they are not.
func (d *daemon) direct() *peers.Direct {
	switch {
	case d.verbs != nil:
		return d.byRDMA()
	case d.node != nil:
		return d.byMemory()
	case d.ether != nil:
		return d.byPackets()
	}
	return nil
}

func (d *daemon) byMemory() *peers.Direct {
	return &peers.Direct{
		Name: "shared memory", Missed: slog.LevelDebug,
		Prepare: func(p link.Peer) (peers.Endpoint, error) {
			e, err := d.node.Prepare(p)
			if err != nil {
				return nil, err // a nil *node.Endpoint would not be a nil peers.Endpoint
			}
			return e, nil
		},
		Connected: func(p link.Peer, fd int, end peers.Endpoint) {
			e := end.(*node.Endpoint) // the Endpoint that Prepare has made
			d.engine.Joined(p, func() error { return d.node.Join(p, fd, e) }, func() { d.discard(fd, e) })
		},
	}
}

func (d *daemon) byPackets() *peers.Direct {
	return &peers.Direct{
		Name: d.ether.Carrier(), Missed: slog.LevelWarn,
		Prepare: func(p link.Peer) (peers.Endpoint, error) { return d.ether.Prepare(p), nil },
		Connected: func(p link.Peer, fd int, end peers.Endpoint) {
			e := end.(*ether.Endpoint) // the Endpoint that Prepare has made
			d.engine.Joined(p, func() error { return d.ether.Join(p, fd, e) }, func() { d.discard(fd, e) })
		},
		Required: !d.mayTCP(),
	}
}

func (d *daemon) byRDMA() *peers.Direct {
	return &peers.Direct{
		Name: "RDMA", Missed: slog.LevelWarn,
		Prepare: func(link.Peer) (peers.Endpoint, error) {
			e, err := d.verbs.Prepare()
			if err != nil {
				return nil, err // as above
			}
			return e, nil
		},
		Connected: func(p link.Peer, fd int, end peers.Endpoint) {
			e := end.(*verbs.Endpoint) // the Endpoint that Prepare has made
			d.engine.Joined(p, func() error { return d.verbs.Join(p, fd, e) }, func() { d.discard(fd, e) })
		},
		Required: !d.mayTCP(),
	}
}

// discard closes a connection that a stopped engine does not accept.
func (d *daemon) discard(fd int, e peers.Endpoint) {
	if err := errors.Join(unix.Close(fd), e.Close()); err != nil {
		d.log.Warn("closing a connection", "cause", err)
	}
}

// Reasons why ranks may not register memory themselves.
var (
	errExposure = errors.New("the job does not allow it: set exposure to Allowed in its FabricProfile, or tuning.exposure to allowed in the job document, if its programs are trusted with an RDMA device")
	errNoDevice = errors.New("data between pods goes by tcp here, not by RDMA")
)

// exposure returns the function that opens a context of the device for ranks that register
// their own memory, or the reason why they may not.
func (d *daemon) exposure() (open func() (link.Context, error), why error) {
	switch {
	case d.doc.Tuning.Exposure != bootstrap.ExposureAllowed:
		return nil, errExposure
	case d.verbs == nil:
		return nil, errNoDevice
	}
	return d.verbs.OpenContext, nil
}

func (d *daemon) mayTCP() bool {
	r := d.doc.Tuning.Require
	return len(r) == 0 || slices.Contains(r, bootstrap.TransportTCP)
}
