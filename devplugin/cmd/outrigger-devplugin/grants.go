package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/grant"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// grants is the part of the agent that serves sidecars.
type grants struct {
	agent   *grant.Agent
	runtime *grant.CRI
}

// newGrants listens on the grant socket. The kubelet and the runtime need not run yet:
// they are asked when a sidecar calls.
func (a *agent) newGrants() (*grants, error) {
	most, err := parseSize(a.o.memlockMax)
	if err != nil {
		return nil, fmt.Errorf("--memlock-max: %w", err)
	}
	runtime, err := grant.DialCRI(a.o.criSocket)
	if err != nil {
		return nil, fmt.Errorf("--cri-socket %s: %w", a.o.criSocket, err)
	}
	c := grant.Config{Socket: a.o.grantSocket, MemlockMax: most, Limiter: grant.Memory{}, Log: a.log}
	ether := etherPools(a.config)
	if len(ether) > 0 {
		if c.Sockets, err = grant.NewPacketSockets("/proc"); err != nil {
			return nil, errors.Join(err, runtime.Close())
		}
	}
	c.Who = &grant.Directory{
		CgroupRoot: a.o.cgroupRoot, Runtime: runtime, Allocations: a.kubelet,
		Resources: a.ledger.Resources(), Ether: ether, JobLabels: []string{names.LabelJob, names.LabelAttempt},
	}
	g := &grants{runtime: runtime}
	if g.agent, err = grant.Listen(c); err != nil {
		return nil, errors.Join(fmt.Errorf("--grant-socket %s: %w", a.o.grantSocket, err), runtime.Close())
	}
	return g, nil
}

// etherPools returns the pools of the kind ether.
func etherPools(c *pool.Config) (list []grant.EtherPool) {
	for i := range c.Pools {
		if p := &c.Pools[i]; p.Kind == inventory.Ether {
			list = append(list, grant.EtherPool{Resource: p.Resource, Interface: p.Interface})
		}
	}
	return list
}

// etherDevices returns the devices of these pools, with what prevents the agent from making
// sockets for them.
func etherDevices(c *pool.Config, o *options) []inventory.Device {
	problems := grant.SocketProblems()
	if o.grantSocket == "" {
		problems = append(problems, "the agent has no --grant-socket")
	}
	return c.EtherDevices(problems)
}

func (g *grants) serve(ctx context.Context) error {
	return errors.Join(g.agent.Serve(ctx), g.runtime.Close())
}

// parseSize reads bytes with an optional suffix KiB, MiB, GiB or TiB, or
// "unlimited".
func parseSize(text string) (uint64, error) {
	if text == "unlimited" {
		return ^uint64(0), nil // RLIM_INFINITY
	}
	digits, shift := text, 0
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			digits, shift = number, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || bits.Len64(n)+shift > 64 {
		return 0, fmt.Errorf(`%q is not a size such as 64GiB, nor "unlimited"`, text)
	}
	return n << shift, nil
}
