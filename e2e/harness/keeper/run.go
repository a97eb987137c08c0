package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/controlplane"
	"github.com/outrigger-hpc/outrigger/e2e/harness/daemon"
	"github.com/outrigger-hpc/outrigger/e2e/harness/dns"
	"github.com/outrigger-hpc/outrigger/e2e/harness/node"
)

// startPatience is how long the control plane may take to come up.
const startPatience = 3 * time.Minute

// The last line of the keeper's status file: the cluster is up, or, after the mark, why it is
// not.
const (
	StatusUp     = "up"
	StatusFailed = "failed: "
)

// Run brings the cluster of dir up and keeps it until ctx ends. The process must
// be in namespaces of its own. Connections to public, a listener in the
// machine's network, are passed on to the API server. Progress goes to status,
// a line a step.
func Run(ctx context.Context, dir string, public net.Listener, status io.Writer) error {
	l, err := ReadLayout(dir)
	if err != nil {
		return err
	}
	k := &keeper{layout: l, plane: l.plane(), runs: daemon.NewSet(l.Logs()), status: status, nodes: map[string]*machine{}}
	err = k.up(ctx, public)
	if err != nil {
		// The status has one line for it.
		fmt.Fprintln(status, StatusFailed+strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	fmt.Fprintln(status, StatusUp)
	<-ctx.Done()
	return nil
}

// keeper is owned by Run's goroutine until the cluster is up, and then by the
// requests, one at a time.
type keeper struct {
	layout *Layout
	plane  *controlplane.Plane
	runs   *daemon.Set
	nodes  map[string]*machine
	status io.Writer
}

func (k *keeper) up(ctx context.Context, public net.Listener) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"network", k.network},
		{"certificates", k.identities},
		{"control plane", func() error { return k.controlPlane(ctx) }},
		{"name server", func() error { return k.names(ctx) }},
		{"nodes", k.startAll},
		{"requests", func() error {
			_, err := control.Serve(k.layout.Socket(), &Control{keeper: k})
			return err
		}},
	}
	go forward(public, net.JoinHostPort(address, fmt.Sprint(apiPort)))
	for _, s := range steps {
		start := time.Now()
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		fmt.Fprintf(k.status, "%s, %.1f s\n", s.what, time.Since(start).Seconds())
	}
	return nil
}

// identities makes the certificates of the control plane and of the nodes.
func (k *keeper) identities() error {
	if err := k.plane.Prepare(); err != nil {
		return err
	}
	if err := k.plane.AddUser("keeper", k.plane.Server(), controlplane.Administrator, "system:masters"); err != nil {
		return err
	}
	for _, name := range k.layout.Names() {
		if err := k.plane.AddUser(name, k.plane.Server(), "system:node:"+name, "system:nodes"); err != nil {
			return err
		}
	}
	return nil
}

// config returns the configuration by which the keeper reaches the API server.
func (k *keeper) config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", k.plane.Kubeconfig("keeper"))
}

func (k *keeper) controlPlane(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for _, c := range []daemon.Command{k.plane.Etcd(), k.plane.APIServer()} {
		if err := k.runs.Start(c); err != nil {
			return err
		}
	}
	config, err := k.config()
	if err != nil {
		return err
	}
	err = controlplane.Ready(ctx, config, func() error {
		return errors.Join(k.runs.Alive(controlplane.Etcd), k.runs.Alive(controlplane.APIServer))
	})
	if err != nil {
		return err
	}
	return errors.Join(k.runs.Start(k.plane.Controllers()), k.runs.Start(k.plane.Scheduler()), k.proxy())
}

// proxy runs a kube-proxy next to the API server, which calls webhooks by their
// Services.
func (k *keeper) proxy() error {
	text, err := node.ProxyConfig("control-plane", k.plane.Kubeconfig(node.Proxy), podRange)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.plane.Path("proxy.yaml"), text, 0o644); err != nil {
		return err
	}
	return k.runs.Start(daemon.Command{
		Name: node.Proxy,
		Args: []string{filepath.Join(k.layout.Bin, node.Proxy), "--config=" + k.plane.Path("proxy.yaml")},
	})
}

func (k *keeper) names(ctx context.Context) error {
	config, err := k.config()
	if err != nil {
		return err
	}
	return dns.Serve(ctx, net.JoinHostPort(address, "53"), config)
}

// forward passes each connection to a listener on to an address.
func forward(from net.Listener, to string) {
	for {
		conn, err := from.Accept()
		if err != nil {
			return // the listener is closed: the keeper ends
		}
		go pass(conn, to)
	}
}

func pass(conn net.Conn, to string) {
	defer conn.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // the client sees its connection closed, as without a server
	}
	defer server.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(server, conn) // a broken connection ends both ways
		_ = server.(*net.TCPConn).CloseWrite()
		close(ended)
	}()
	_, _ = io.Copy(conn, server)
	_ = conn.(*net.TCPConn).CloseWrite()
	<-ended
}
