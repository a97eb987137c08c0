package grant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// Bounds of packet sockets (PROTOCOL.md §5). A container gets socketsBurst sockets at once,
// enough for a sidecar that starts again, and then one each socketsInterval: the agent does not
// see when a socket is closed.
const (
	socketsBurst    = 4
	socketsInterval = 30 * time.Second
	// etherPatience bounds the time of one request, in which the kernel may have to wait for
	// its lock of network configuration.
	etherPatience = 5 * time.Second
	// holdersMax bounds the containers whose requests are remembered. A node has some hundred.
	holdersMax = 4096
)

// EtherPool is a pool of the kind ether.
type EtherPool struct {
	Resource string
	// Interface is the interface of pods that the pool's sockets are for; empty: the one with
	// the pod's default route, or else the only Ethernet interface that is up.
	Interface string
}

// SocketRequest is a request for a packet socket.
type SocketRequest struct {
	Namespace *os.File // as the caller has sent it
	PID       int      // of the caller
	Interface string   // as in EtherPool
}

// PacketSocket is a packet socket in a pod's network namespace.
type PacketSocket struct {
	File      *os.File
	Interface string
	Index     int
	Address   string
	MTU       int
}

// Sockets makes packet sockets. An error refuses the request.
type Sockets interface {
	Make(context.Context, SocketRequest) (*PacketSocket, error)
}

// ether answers a request for a packet socket. The interface is that of the pool from which
// the caller's container was allocated, and nothing that the caller sends.
func (s *session) ether(ctx context.Context, namespace *os.File, out *grant.Message) (*os.File, error) {
	pool, err := s.caller.etherPool()
	switch {
	case err != nil:
		return nil, err
	case s.agent.config.Sockets == nil:
		return nil, errors.New("this agent makes no packet sockets; its configuration needs a pool of the kind ether")
	case namespace == nil:
		return nil, errors.New("the request has no descriptor; send that of /proc/self/ns/net")
	case !s.agent.holders.take(s.caller.PodUID + "/" + s.caller.Container):
		return nil, fmt.Errorf("the container has got %d sockets at once, or more than one each %s since; try again later", socketsBurst, socketsInterval)
	}
	ctx, cancel := context.WithTimeout(ctx, etherPatience)
	defer cancel()
	made, err := s.agent.config.Sockets.Make(ctx, SocketRequest{Namespace: namespace, PID: s.process.pid, Interface: pool.Interface})
	if err != nil {
		return nil, err
	}
	// The namespace was compared with that of the process by its number.
	if err := s.process.alive(); err != nil {
		return nil, errors.Join(err, made.File.Close())
	}
	out.Interface, out.Index, out.Address, out.MTU = made.Interface, made.Index, made.Address, made.MTU
	return made.File, nil
}

// etherPool returns the pool of the kind ether from which the container was allocated.
func (c *Caller) etherPool() (EtherPool, error) {
	switch len(c.Ether) {
	case 0:
		return EtherPool{}, errors.New("the container was not allocated a device of a pool of the kind ether; ask for one, such as outrigger.dev/ether, in its resource limits")
	case 1:
		return c.Ether[0], nil
	}
	names := make([]string, len(c.Ether))
	for i := range c.Ether {
		names[i] = c.Ether[i].Resource
	}
	return EtherPool{}, fmt.Errorf("the container holds %s, and it is not known for which interface it asks; ask for one of them in its resource limits", strings.Join(names, " and "))
}

// holders bounds the sockets of each container.
type holders struct {
	mu   sync.Mutex
	list map[string]*rate.Limiter
}

// take takes one of the container's sockets, and reports whether it may have one.
func (h *holders) take(container string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.list[container]
	if l == nil {
		if len(h.list) >= holdersMax {
			h.forget()
		}
		if len(h.list) >= holdersMax {
			return false
		}
		l = rate.NewLimiter(rate.Every(socketsInterval), socketsBurst)
		h.list[container] = l
	}
	return l.Allow()
}

// forget forgets the containers that may have the whole burst again, for which a new limiter is
// the same. h.mu is held.
func (h *holders) forget() {
	for name, l := range h.list {
		if l.Tokens() >= socketsBurst {
			delete(h.list, name)
		}
	}
}
