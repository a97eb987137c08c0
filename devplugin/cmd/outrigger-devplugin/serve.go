package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/cdi"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/grant"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/kubelet"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/offer"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/sriov"
)

// agent is the state of the whole program.
type agent struct {
	o       *options
	log     *slog.Logger
	config  *pool.Config
	ledger  *offer.Ledger
	looking sync.Mutex // held during a scan; guards unheld and undescribed
	unheld  bool       // at the last scan the kubelet did not report what containers hold
	// undescribed is the error of the last description of each resource.
	undescribed map[string]string
	scanner     inventory.Scanner
	plugins     map[string]*kubelet.Plugin
	// cdi is nil if the kubelet adds device files. The descriptions stay when the agent
	// ends, since a container may be restarted while the agent is replaced.
	cdi *cdi.Directory
	// kubelet reports which container has which device.
	kubelet *grant.PodResources
	// grants is nil without a socket for it.
	grants *grants
	// sriov is nil when the configuration leaves virtual functions alone.
	sriov *sriov.Keeper

	warnings atomic.Int64  // number of warnings of the last scan
	scans    atomic.Uint64 // number of scans so far
	scanned  atomic.Int64  // end of the last scan, as UnixNano
}

func serve(ctx context.Context, o *options) error {
	a, err := newAgent(o)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

func newAgent(o *options) (*agent, error) {
	log, err := newLog(o)
	if err != nil {
		return nil, err
	}
	if o.interval <= 0 {
		return nil, fmt.Errorf("--interval %s: the agent would never rest; use 5s", o.interval)
	}
	config, err := loadConfig(o.config)
	if err != nil {
		return nil, err
	}
	a := &agent{o: o, log: log, config: config, ledger: offer.New(config), plugins: map[string]*kubelet.Plugin{}, undescribed: map[string]string{}}
	c := kubelet.Config{Dir: o.kubeletDir, HostDev: filepath.Join(o.hostRoot, "dev"), GrantSocket: o.grantSocket, Log: log}
	switch o.injection {
	case "kubelet":
	case "cdi":
		for _, name := range a.ledger.Resources() {
			if err := cdi.Check(name); err != nil {
				return nil, fmt.Errorf("--injection cdi: %w", err)
			}
		}
		a.cdi = &cdi.Directory{Path: o.cdi, HostDev: c.HostDev}
		c.CDI = cdi.Name
	default:
		return nil, fmt.Errorf("--injection %q: use kubelet or cdi", o.injection)
	}
	c.Before = a.firstHeld
	for _, name := range a.ledger.Resources() {
		c.Resource = name
		a.plugins[name] = kubelet.New(c, a.ledger)
	}
	if a.kubelet, err = grant.DialPodResources(o.podResources); err != nil {
		return nil, fmt.Errorf("--pod-resources %s: %w", o.podResources, err)
	}
	if len(config.SRIOV) > 0 {
		a.sriov = sriov.NewKeeper(config.SRIOV, sriov.NewHost(o.root), func() sriov.Use { return inUse(context.Background(), a.kubelet) }, a.withdraw, log)
	}
	if o.grantSocket != "" {
		if a.grants, err = a.newGrants(); err != nil {
			return nil, errors.Join(err, a.kubelet.Close())
		}
	}
	return a, nil
}

func newLog(o *options) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	switch h := (&slog.HandlerOptions{Level: level}); o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, h)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", o.logFormat)
}

// run scans the devices before it connects to the kubelet, so that the first list is
// complete.
func (a *agent) run(ctx context.Context) error {
	a.refresh()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.watch(ctx) })
	for _, p := range a.plugins {
		g.Go(func() error { return p.Run(ctx) })
	}
	if a.sriov != nil {
		g.Go(func() error { return a.tendSRIOV(ctx) })
	}
	if a.grants != nil {
		g.Go(func() error { return a.grants.serve(ctx) })
	}
	if a.o.listen != "" {
		g.Go(func() error { return serveMetrics(ctx, a) })
	}
	return errors.Join(g.Wait(), a.kubelet.Close())
}

// watch scans at each interval.
func (a *agent) watch(ctx context.Context) error {
	t := time.NewTicker(a.o.interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			a.refresh()
		}
	}
}

// withdraw makes devices unhealthy, here and at the kubelet, until the returned
// function is called.
func (a *agent) withdraw(addresses []string, why string) (back func()) {
	a.ledger.Withdraw(addresses, why)
	a.refresh()
	return func() {
		a.ledger.Withdraw(nil, "")
		a.refresh()
	}
}

// holdPatience is how long the kubelet may take to report what containers hold.
const holdPatience = 2 * time.Second

// askHeld passes the units that containers hold from the kubelet to the ledger.
func (a *agent) askHeld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	held, err := a.kubelet.Held(ctx)
	if err != nil {
		return fmt.Errorf("which devices containers hold is not known: the kubelet does not answer at --pod-resources %s: %w; without the answer a device could be given twice, mount that directory into the agent", a.o.podResources, err)
	}
	a.ledger.Hold(held)
	return nil
}

// firstHeld is askHeld before the first allocation: the kubelet that requests it can
// answer, and may not have run at the last scan.
func (a *agent) firstHeld(ctx context.Context) error {
	if a.ledger.Known() {
		return nil
	}
	if err := a.askHeld(ctx); err != nil {
		return err
	}
	a.refresh()
	return nil
}

// refresh scans the devices of the node and the units that containers hold, and passes
// changes to the kubelet and the container runtime.
func (a *agent) refresh() {
	a.looking.Lock()
	defer a.looking.Unlock()
	err := a.askHeld(context.Background())
	if (err == nil) == a.unheld {
		a.unheld = err != nil
		if err != nil {
			a.log.Warn("asking the kubelet for what containers hold", "cause", err)
		}
	}
	r := a.scanner.Scan(os.DirFS(a.o.root))
	if n := int64(len(r.Warnings)); a.warnings.Swap(n) != n {
		for _, w := range r.Warnings {
			a.log.Warn("sysfs makes no sense here", "path", w.Path, "cause", w.Problem)
		}
	}
	changed := map[string]bool{}
	for _, c := range a.ledger.Update(append(r.Devices, etherDevices(a.config, a.o)...)) {
		changed[c.Resource] = true
		log := a.log.With("resource", c.Resource, "device", c.ID, "name", c.Name)
		if len(c.Problems) == 0 {
			log.Info("device is healthy")
		} else {
			log.Warn("device cannot be used", "problems", c.Problems)
		}
	}
	for name, p := range a.plugins {
		if a.cdi != nil {
			a.describe(name)
		}
		if changed[name] {
			if shares, of, cut := a.ledger.Cut(name); cut {
				a.log.Warn("more shares than the kubelet takes: fewer are offered; write fewer shares, or select fewer devices", "resource", name, "shares of each device", shares, "configured", of)
			}
			p.Changed()
		}
	}
	a.scans.Add(1)
	a.scanned.Store(time.Now().UnixNano())
}

// describe writes the CDI description of a resource. An error is logged when it begins,
// and not at each scan. Preconditions: a.looking is held.
func (a *agent) describe(name string) {
	err := a.cdi.Write(name, a.ledger.Files(name))
	text := fmt.Sprint(err)
	if err != nil && a.undescribed[name] != text {
		a.log.Error("describing devices to the container runtime; containers that need them will not start", "resource", name, "cause", err)
	}
	a.undescribed[name] = text
}
