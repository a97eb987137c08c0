// Package kubelet offers one resource to the node's kubelet as a device plugin
// (Kubernetes documentation, "Device Plugins", API v1beta1). It owns the gRPC server on
// a socket in the kubelet's directory, and the registration, which it repeats when the
// kubelet has restarted or ended its watch.
package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/offer"
)

// Ledger is the source of the resource's devices.
type Ledger interface {
	Units(resource string) []offer.Unit
	Prefer(resource string, available, must []string, size int) []string
	Allocate(resource string, units []string) (*offer.Handout, error)
}

// Config describes one plugin.
type Config struct {
	Resource string
	// Dir is the kubelet's directory of device plugins, with its socket
	// kubelet.sock.
	Dir string
	// HostDev is where the kubelet finds device files; the default is /dev.
	HostDev string
	// CDI returns the qualified CDI name of a device, for a container runtime that adds device
	// files itself. nil: the kubelet adds them.
	CDI func(resource, device string) string
	// GrantSocket is the path of the node agent's socket, on the node and in the container; ""
	// for none. A container with a device of Outrigger gets the socket's directory.
	GrantSocket string
	// Before is called before each allocation, which its error refuses; nil: every allocation
	// is allowed.
	Before func(context.Context) error
	// Retry is the first pause after a failed registration; the pause doubles
	// up to 30 times of it. The default is one second.
	Retry time.Duration
	// Watch is how long the kubelet may take to request the devices after it has accepted the
	// plugin. It connects to the plugin later, and if that fails it reports this only in its
	// own log. The default is 30 seconds; the kubelet gives up after 10.
	Watch time.Duration
	// Look is the interval at which the sockets are checked if no file event arrives; the
	// default is two seconds.
	Look time.Duration
	Log  *slog.Logger
}

// Plugin is the device plugin of one resource.
type Plugin struct {
	config Config
	ledger Ledger

	registrations atomic.Uint64
	registered    atomic.Bool
	allocations   atomic.Uint64
	refusals      atomic.Uint64

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change of the devices
}

// New makes a plugin. It does nothing until Run.
func New(c Config, l Ledger) *Plugin {
	if c.HostDev == "" {
		c.HostDev = "/dev"
	}
	if c.Retry == 0 {
		c.Retry = time.Second
	}
	if c.Watch == 0 {
		c.Watch = 30 * time.Second
	}
	if c.Look == 0 {
		c.Look = 2 * time.Second
	}
	c.Log = c.Log.With("resource", c.Resource)
	return &Plugin{config: c, ledger: l, changed: make(chan struct{})}
}

// Changed makes the plugin send the devices to the kubelet again.
func (p *Plugin) Changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Plugin) nextChange() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// Registrations returns how often the kubelet has accepted the plugin.
func (p *Plugin) Registrations() uint64 { return p.registrations.Load() }

// Allocations returns how many containers were given devices of the resource, and how
// many were refused.
func (p *Plugin) Allocations() (given, refused uint64) {
	return p.allocations.Load(), p.refusals.Load()
}

// Registered reports whether the plugin is registered now.
func (p *Plugin) Registered() bool { return p.registered.Load() }

// socket returns the path of the plugin's socket. Its name is that of the resource, so
// that a restarted plugin replaces its predecessor.
func (p *Plugin) socket() string {
	name := strings.ReplaceAll(p.config.Resource, "/", "-")
	if len(name) > nameMax {
		sum := sha256.Sum256([]byte(p.config.Resource))
		name = name[:nameMax-2*sumBytes-1] + "-" + hex.EncodeToString(sum[:sumBytes])
	}
	return filepath.Join(p.config.Dir, name+".sock")
}

// The path of a socket has at most 107 bytes (unix(7)), of which the kubelet's
// directory takes 31 and the suffixes 9. The name of a resource may have 317. Names
// longer than nameMax are cut, and get a part of their hash.
const (
	nameMax  = 60
	sumBytes = 8
)

// ErrReplaced is returned by Run if another process has replaced its socket.
var ErrReplaced = errors.New("another device plugin has taken this one's socket; only one may run on a node")

// Run serves until the context ends. It waits for the kubelet to start, and registers
// again after a restart of the kubelet.
func (p *Plugin) Run(ctx context.Context) error {
	w := newWatch(p.config.Dir, p.config.Look, p.config.Log)
	defer w.close()
	for ctx.Err() == nil {
		kubelet := p.kubelet()
		if kubelet == absent {
			w.wait(ctx)
			continue
		}
		if err := p.attend(ctx, w, kubelet); err != nil {
			return err
		}
	}
	return nil
}

// attend serves one process of the kubelet. It ends when the kubelet's socket is
// replaced, when the plugin's own socket is gone (a starting kubelet empties the
// directory), or when the kubelet has ended its watch.
func (p *Plugin) attend(ctx context.Context, w *watch, kubelet identity) error {
	s, err := p.listen()
	if err != nil {
		p.config.Log.Error("listening for the kubelet failed; trying again", "cause", err)
		w.wait(ctx)
		return nil
	}
	defer s.stop()
	defer p.registered.Store(false)
	if !p.registerUntil(ctx, w, kubelet) {
		return nil
	}
	late := time.NewTimer(p.config.Watch)
	defer late.Stop()
	for {
		unwatched := w.waitOr(ctx, s.forgotten, late.C) && !s.isWatched()
		now := identify(p.socket())
		switch {
		case ctx.Err() != nil:
			return nil
		case now != absent && now.inode != s.own:
			return fmt.Errorf("%s: %w", p.socket(), ErrReplaced)
		case now == absent, p.kubelet() != kubelet:
			p.config.Log.Info("the kubelet was restarted")
			return nil
		case s.isForgotten():
			p.config.Log.Info("the kubelet has ended its watch")
			w.pause(ctx, p.config.Retry)
			return nil
		case unwatched:
			p.config.Log.Warn("the kubelet has accepted the plugin and does not ask for its devices; registering again", "after", p.config.Watch)
			return nil
		}
	}
}

// registerUntil registers with the kubelet, and retries while the kubelet is the same
// process. It reports whether it succeeded.
func (p *Plugin) registerUntil(ctx context.Context, w *watch, kubelet identity) bool {
	pause := p.config.Retry
	for {
		err := p.register(ctx)
		if err == nil {
			p.registrations.Add(1)
			p.registered.Store(true)
			p.config.Log.Info("registered with the kubelet", "units", len(p.ledger.Units(p.config.Resource)))
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		p.config.Log.Warn("the kubelet did not accept the plugin; trying again", "cause", err, "pause", pause)
		w.pause(ctx, pause)
		pause = min(2*pause, 30*p.config.Retry)
		if ctx.Err() != nil || p.kubelet() != kubelet || identify(p.socket()) == absent {
			return false
		}
	}
}

// registerPatience is how long the kubelet may take to answer.
const registerPatience = 10 * time.Second

func (p *Plugin) register(ctx context.Context) error {
	path := filepath.Join(p.config.Dir, filepath.Base(api.KubeletSocket))
	c, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	_, err = api.NewRegistrationClient(c).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(p.socket()), ResourceName: p.config.Resource, Options: options(),
	})
	return err
}

// listen replaces the plugin's socket atomically: a running predecessor must see that
// it was replaced, and not that its socket is gone as after a restart of the kubelet.
func (p *Plugin) listen() (*server, error) {
	fresh := p.socket() + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then the name may be a successor's
	own := identify(fresh)
	if err := os.Rename(fresh, p.socket()); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(fresh))
	}
	return serve(p, l, own.inode), nil
}

// kubelet identifies the kubelet by its socket.
func (p *Plugin) kubelet() identity {
	return identify(filepath.Join(p.config.Dir, filepath.Base(api.KubeletSocket)))
}
