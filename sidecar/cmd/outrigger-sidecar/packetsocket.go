package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/ether"
)

// packetSocket returns the packet socket that the node's agent makes for this container, or
// nil if no device of the kind ether is allocated to it. It waits for an agent that does not
// answer until ctx ends.
func (d *daemon) packetSocket(ctx context.Context) (*ether.Raw, error) {
	held, err := devices.FromEnv(os.Environ())
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(held, func(x devices.Device) bool { return x.Kind == devices.KindEther }) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	var s *grant.Socket
	err = d.start.retry(ctx, "the node's agent at "+d.o.grantSocket, isAnswer, func(ctx context.Context) (err error) {
		s, err = askSocket(ctx, d.o.grantSocket)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.log.Info("the node's agent has made a packet socket", "interface", s.Interface, "address", s.Address.String(), "mtu", s.MTU)
	return &ether.Raw{FD: s.FD}, nil
}

// askSocket asks an agent for a packet socket, on a connection of its own.
func askSocket(ctx context.Context, socket string) (*grant.Socket, error) {
	if socket == "" {
		return nil, errNoAgent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, memlockTimeout, errors.New("the agent does not answer"))
	defer cancel()
	c, err := grant.Dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("%w; is the device plugin running on this node?", err)
	}
	defer c.Close()
	return c.Ether(ctx)
}
