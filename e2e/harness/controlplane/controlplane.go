// Package controlplane has the settings of etcd and Kubernetes' control plane for tests:
// certificates, the kubeconfig file of each component, and the command lines. It starts
// nothing, so that the same settings serve a control plane on loopback and one in its own
// network.
package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/outrigger-hpc/outrigger/e2e/harness/daemon"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pki"
)

// Names under which the programs are started.
const (
	Etcd        = "etcd"
	APIServer   = "kube-apiserver"
	Controllers = "kube-controller-manager"
	Scheduler   = "kube-scheduler"
)

// TokenKey is the file, of Dir, of the key that signs tokens of service accounts.
const TokenKey = "tokens.key"

// Plane is one control plane. All its files are in Dir, whose contents it owns.
type Plane struct {
	Dir      string // certificates, kubeconfig files, etcd's data
	Bin      string // the folder of the programs, as hack/kube/build makes it
	Address  net.IP // where the API server listens and where nodes find it
	Port     int    // of the API server
	EtcdPort int    // on 127.0.0.1, of etcd's clients
	PeerPort int    // on 127.0.0.1, of etcd's peers, of which there are none
	Services string // the range of Service addresses, CIDR
	// Public is where programs outside of the control plane's network reach the
	// API server, host:port. Zero: Address and Port.
	Public string

	authority *pki.Authority
}

// Server returns the API server's URL for programs in its own network.
func (p *Plane) Server() string {
	return "https://" + net.JoinHostPort(p.Address.String(), strconv.Itoa(p.Port))
}

// Path returns a file of this control plane.
func (p *Plane) Path(name string) string { return filepath.Join(p.Dir, name) }

// Etcd returns etcd's command. Nothing here has to survive a crash, so it need not
// wait for the disk.
func (p *Plane) Etcd() daemon.Command {
	client := "http://127.0.0.1:" + strconv.Itoa(p.EtcdPort)
	peer := "http://127.0.0.1:" + strconv.Itoa(p.PeerPort)
	return p.command(
		Etcd, "--data-dir="+p.Path("etcd"), "--unsafe-no-fsync", "--logger=zap", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
}

// APIServer returns the API server's command, with the admission that a production
// cluster has.
func (p *Plane) APIServer() daemon.Command {
	return p.command(
		APIServer, "--etcd-servers=http://127.0.0.1:"+strconv.Itoa(p.EtcdPort),
		"--bind-address="+p.Address.String(), "--advertise-address="+p.Address.String(), "--secure-port="+strconv.Itoa(p.Port),
		"--tls-cert-file="+p.Path("apiserver.crt"), "--tls-private-key-file="+p.Path("apiserver.key"),
		"--client-ca-file="+p.Path("ca.crt"), "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate="+p.Path("kubelet-client.crt"), "--kubelet-client-key="+p.Path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.Path("tokens.pub"), "--service-account-signing-key-file="+p.Path(TokenKey),
		"--service-cluster-ip-range="+p.Services, "--allow-privileged=true")
}

// Controllers returns the controller manager's command.
func (p *Plane) Controllers() daemon.Command {
	return p.command(
		Controllers, "--kubeconfig="+p.Kubeconfig(Controllers),
		"--root-ca-file="+p.Path("ca.crt"), "--service-account-private-key-file="+p.Path(TokenKey),
		"--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1",
		// A lost node is seen in seconds, not in the minute that large clusters
		// want: six heartbeats, so that a busy machine loses none.
		"--node-monitor-period=2s", "--node-monitor-grace-period=24s")
}

// Scheduler returns the scheduler's command.
func (p *Plane) Scheduler() daemon.Command {
	return p.command(Scheduler, "--kubeconfig="+p.Kubeconfig(Scheduler), "--leader-elect=false", "--bind-address=127.0.0.1")
}

func (p *Plane) command(name string, args ...string) daemon.Command {
	return daemon.Command{Name: name, Args: append([]string{filepath.Join(p.Bin, name)}, args...)}
}

// Ready waits until the API server reports that it is ready, or alive returns an error because
// a program has ended.
func Ready(ctx context.Context, config *rest.Config, alive func() error) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	for {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		if dead := alive(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w (last answer: %w)", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *Plane) write(name string, content []byte) error {
	if err := os.WriteFile(p.Path(name), content, 0o600); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	return nil
}
