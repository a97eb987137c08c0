package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
)

// memlockBase is what a sidecar registers besides the memory of its ranks:
// rings, completion queues, eager buffers.
const memlockBase = 256 << 20

// memlockPatience bounds one question to the node's agent, which has to ask the kubelet about
// this sidecar. An agent that is away, since it is being replaced for example, is asked again.
const memlockPatience = 15 * time.Second

// lockMemory asks for what may have to be registered with a device: all that the
// pod's ranks share with the sidecar.
func (d *daemon) lockMemory(ctx context.Context) {
	c, err := d.sessionConfig()
	if err != nil {
		return // of --app-uid: who listens for sessions says so
	}
	l := &locker{
		log: d.log, socket: d.o.grantSocket, environ: os.Environ(), start: d.start,
		bytes: uint64(c.Count)*(uint64(c.Geometry.SlabBytes)+c.ArenaBytes) + memlockBase,
	}
	l.raise(ctx)
}

// locker is who a sidecar asks for locked memory, and on what grounds.
type locker struct {
	log    *slog.Logger
	start  *start
	socket string // of the node's agent
	// environ is in the form of os.Environ; the device plugin has told there
	// which devices the container holds.
	environ []string
	bytes   uint64 // that may have to be registered
}

// raise asks the node's agent to raise this process's limit of locked memory,
// for registering memory with the devices that the container was given. An agent that is
// away is waited for until ctx ends. What it answers is in the log, and fails nothing: what
// really needs the memory fails later with a reason of its own.
func (l *locker) raise(ctx context.Context) {
	held, err := devices.FromEnv(l.environ)
	if err != nil {
		l.log.Warn("what the device plugin says about this container's devices makes no sense", "cause", err)
		return
	}
	if len(held) == 0 {
		return // a sidecar without devices registers nothing
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
	err = l.start.until(ctx, "the node's agent at "+l.socket, answers, func(ctx context.Context) (err error) {
		granted, err = l.ask(ctx)
		return err
	})
	switch {
	case err != nil:
		log.Warn("the limit of locked memory was not raised; registering more than it with the network card will fail", "bytes", now.Cur, "cause", err)
	case granted < l.bytes:
		log.Warn("the limit of locked memory was raised to the node's bound, which is less than may be needed; see --memlock-max of the device plugin", "bytes", granted)
	default:
		log.Info("the limit of locked memory was raised", "bytes", granted)
	}
}

// errNoAgent says that no agent is there to be waited for.
var errNoAgent = errors.New("no agent's socket is known; the device plugin gives it unless it runs with --grant-socket=''")

// answers reports whether an error is an answer: another question would have the same. All
// but those of a connection are, those of an agent of another version for example.
func answers(err error) bool {
	return !errors.As(err, new(*net.OpError)) && !errors.Is(err, io.EOF)
}

func (l *locker) ask(ctx context.Context) (uint64, error) {
	if l.socket == "" {
		return 0, errNoAgent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, memlockPatience, errors.New("the agent does not answer"))
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
