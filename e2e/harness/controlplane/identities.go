package controlplane

import (
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/outrigger-hpc/outrigger/e2e/harness/pki"
)

// Administrator is the user who may do everything.
const Administrator = "admin"

// Prepare makes the certificates and the kubeconfig files of the components and
// of Administrator. The files of nodes are made by AddUser.
func (p *Plane) Prepare() error {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	var err error
	if p.authority, err = pki.New(); err != nil {
		return err
	}
	if err := p.write("ca.crt", p.authority.CA()); err != nil {
		return err
	}
	if err := p.serverKeys(); err != nil {
		return err
	}
	// The groups are those that Kubernetes' own roles are bound to.
	for _, u := range []struct{ file, user string }{
		{Controllers, "system:kube-controller-manager"},
		{Scheduler, "system:kube-scheduler"},
		{"kube-proxy", "system:kube-proxy"},
	} {
		if err := p.AddUser(u.file, p.Server(), u.user); err != nil {
			return err
		}
	}
	public := p.Server()
	if p.Public != "" {
		public = "https://" + p.Public
	}
	return p.AddUser(Administrator, public, Administrator, "system:masters")
}

// serverKeys makes the API server's certificates for clients and for kubelets, and the key
// that signs ServiceAccount tokens.
func (p *Plane) serverKeys() error {
	first, _, err := net.ParseCIDR(p.Services)
	if err != nil {
		return fmt.Errorf("range of Service addresses: %w", err)
	}
	kubernetes := first.To4()
	kubernetes[3]++ // the first address is always the Service "kubernetes"
	server, err := p.authority.Server("kube-apiserver",
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		[]net.IP{p.Address, net.IPv4(127, 0, 0, 1), kubernetes})
	if err != nil {
		return err
	}
	kubelet, err := p.authority.User("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	private, public, err := pki.Signing()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"apiserver.crt": server.Cert, "apiserver.key": server.Key,
		"kubelet-client.crt": kubelet.Cert, "kubelet-client.key": kubelet.Key,
		TokenKey: private, "tokens.pub": public,
	} {
		if err := p.write(name, content); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig returns the file by which a component or a user that AddUser made
// reaches the API server.
func (p *Plane) Kubeconfig(name string) string { return p.Path(name + ".kubeconfig") }

// AddUser makes a user of these groups and writes the kubeconfig file called
// name. The file holds the certificates themselves, so that it can be copied.
func (p *Plane) AddUser(name, server, user string, groups ...string) error {
	pair, err := p.authority.User(user, groups...)
	if err != nil {
		return err
	}
	const only = "outrigger-test"
	config := api.NewConfig()
	config.Clusters[only] = &api.Cluster{Server: server, CertificateAuthorityData: p.authority.CA()}
	config.AuthInfos[only] = &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts[only] = &api.Context{Cluster: only, AuthInfo: only}
	config.CurrentContext = only
	if err := clientcmd.WriteToFile(*config, p.Kubeconfig(name)); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return nil
}
