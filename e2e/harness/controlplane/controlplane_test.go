package controlplane_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger-hpc/outrigger/e2e/harness/controlplane"
)

func plane(t *testing.T) *controlplane.Plane {
	t.Helper()
	p := &controlplane.Plane{
		Dir: t.TempDir(), Bin: "/programs", Services: "10.79.0.0/16", Public: "127.0.0.1:4000",
		Address: net.IPv4(10, 77, 0, 1), Port: 6443, EtcdPort: 2379, PeerPort: 2380,
	}
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Components reach the API server in its own network, and users from outside, each as the user
// that Kubernetes' roles name.
func TestIdentities(t *testing.T) {
	p := plane(t)
	if err := p.AddUser("node1", p.Server(), "system:node:node1", "system:nodes"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		host, user string
		groups     []string
	}{
		controlplane.Administrator: {"https://127.0.0.1:4000", "admin", []string{"system:masters"}},
		controlplane.Scheduler:     {"https://10.77.0.1:6443", "system:kube-scheduler", nil},
		controlplane.Controllers:   {"https://10.77.0.1:6443", "system:kube-controller-manager", nil},
		"kube-proxy":               {"https://10.77.0.1:6443", "system:kube-proxy", nil},
		"node1":                    {"https://10.77.0.1:6443", "system:node:node1", []string{"system:nodes"}},
	} {
		config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		subject := pair.Leaf.Subject
		if config.Host != want.host || subject.CommonName != want.user || !slices.Equal(subject.Organization, want.groups) {
			t.Errorf("%s reaches %s as %s of %v, want %+v", name, config.Host, subject.CommonName, subject.Organization, want)
		}
	}
}

// The API server's certificate has all names by which it is reached: its address for nodes,
// 127.0.0.1 for the machine, the first Service address and the Service's names for pods.
func TestServerCertificate(t *testing.T) {
	p := plane(t)
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig(controlplane.Administrator))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	pair, err := tls.LoadX509KeyPair(p.Path("apiserver.crt"), p.Path("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.77.0.1", "127.0.0.1", "10.79.0.1", "kubernetes.default.svc"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
}

func TestCommandsAreOfTheFolder(t *testing.T) {
	p := plane(t)
	for _, c := range []struct{ got, want string }{
		{p.Etcd().Args[0], "/programs/etcd"},
		{p.APIServer().Args[0], "/programs/kube-apiserver"},
		{p.Controllers().Args[0], "/programs/kube-controller-manager"},
		{p.Scheduler().Args[0], "/programs/kube-scheduler"},
	} {
		if c.got != c.want {
			t.Errorf("the command is %s, want %s", c.got, c.want)
		}
	}
}
