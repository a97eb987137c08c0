package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
)

// memlockBase is the locked memory that a sidecar needs in addition to the memory of its
// ranks, 256 MiB: rings, completion queues, eager buffers.
const memlockBase = 256 << 20

// memlockTimeout bounds one request to the node's agent, for locked memory or a packet socket:
// the agent has to ask the kubelet about this sidecar. The request is repeated if the agent does not answer, for example because it
// is being replaced.
const memlockTimeout = 15 * time.Second

// lockMemory asks for locked memory for all memory that may be registered with a device:
// all that the pod's ranks share with the sidecar.
func (d *daemon) lockMemory(ctx context.Context) {
	c, err := d.sessionConfig()
	if err != nil {
		return // an invalid --app-uid, which open has reported
	}
	l := &locker{
		log: d.log, socket: d.o.grantSocket, environ: os.Environ(), start: d.start,
		bytes: uint64(c.Count)*(uint64(c.Geometry.SlabBytes)+c.ArenaBytes) + memlockBase,
	}
	l.raise(ctx)
}

// locker asks the node's agent for locked memory.
type locker struct {
	log    *slog.Logger
	start  *start
	socket string // socket of the node's agent
	// environ has the form of os.Environ. In it the device plugin passes the devices of the
	// container.
	environ []string
	bytes   uint64 // locked memory that may be needed
}

// raise asks the node's agent to raise this process's limit of locked memory, so that memory
// can be registered with the container's devices. It waits for an agent that does not answer
// until ctx ends. The result is only logged: a registration that exceeds the limit later
// fails with its own error.
func (l *locker) raise(ctx context.Context) {
	held, err := devices.FromEnv(l.environ)
	if err != nil {
		l.log.Warn("the device plugin's list of this container's devices is invalid", "cause", err)
		return
	}
	held = slices.DeleteFunc(held, func(x devices.Device) bool { return x.Kind == devices.KindEther })
	if len(held) == 0 {
		return // a sidecar without devices registers nothing, and nothing is registered with a packet socket
	}
	log := l.log.With("devices", deviceNames(held), "wanted", l.bytes)
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now); err != nil {
		log.Warn("the limit of locked memory is unknown", "cause", err)
	} else if now.Cur >= l.bytes {
		log.Info("the limit of locked memory suffices", "bytes", now.Cur)
		return
	}
	var granted uint64
	err = l.start.retry(ctx, "the node's agent at "+l.socket, isAnswer, func(ctx context.Context) (err error) {
		granted, err = l.ask(ctx)
		return err
	})
	switch {
	case err != nil:
		log.Warn("the limit of locked memory was not raised; registrations with the network card that exceed it will fail", "bytes", now.Cur, "cause", err)
	case granted < l.bytes:
		log.Warn("the limit of locked memory was raised to the node's bound, which is less than may be needed; see --memlock-max of the device plugin", "bytes", granted)
	default:
		log.Info("the limit of locked memory was raised", "bytes", granted)
	}
}

// errNoAgent reports that there is no agent to wait for.
var errNoAgent = errors.New("no agent's socket is known; the device plugin sets it unless it runs with --grant-socket=''")

// isAnswer reports whether an error is an answer of the agent, which a second request would
// get as well. All errors but those of the connection are, such as that of an agent of
// another version.
func isAnswer(err error) bool {
	return !errors.As(err, new(*net.OpError)) && !errors.Is(err, io.EOF)
}

func (l *locker) ask(ctx context.Context) (uint64, error) {
	if l.socket == "" {
		return 0, errNoAgent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, memlockTimeout, errors.New("the agent does not answer"))
	defer cancel()
	c, err := grant.Dial(ctx, l.socket)
	if err != nil {
		return 0, fmt.Errorf("%w; is the device plugin running on this node?", err)
	}
	defer c.Close()
	return c.Memlock(ctx, l.bytes)
}

func deviceNames(held []devices.Device) []string {
	list := make([]string, len(held))
	for i := range held {
		list[i] = held[i].Name
	}
	return list
}
