// Package harness is the test cluster: a real control plane and real nodes on
// one machine, brought up once by hack/cluster and used by any number of test
// packages, and a control plane on loopback for tests that need no node. See
// docs/cluster.md.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/controlplane"
	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
)

// Cluster is the machine's running cluster.
type Cluster struct {
	Config     *rest.Config // of a user who may do everything
	Kubeconfig string       // a file with the same, for programs
	Client     kubernetes.Interface

	layout *keeper.Layout
}

// Open returns the cluster that runs on this machine. Its API server must answer.
func Open(ctx context.Context) (*Cluster, error) {
	p, err := here()
	if err != nil {
		return nil, err
	}
	layout, err := keeper.ReadLayout(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("no cluster runs on this machine; bring one up with `make cluster-up`")
	} else if err != nil {
		return nil, err
	}
	if _, err := control.Pid(layout.Socket()); err != nil {
		return nil, fmt.Errorf("the cluster has ended without being taken down; bring it up anew with `make cluster-up`: %w", err)
	}
	c := &Cluster{layout: layout, Kubeconfig: layout.Kubeconfig()}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c.Config.QPS, c.Config.Burst = 200, 400 // tests ask often and are alone
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if _, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return nil, fmt.Errorf("the cluster's API server does not answer; its logs are in %s: %w", c.Logs(), err)
	}
	return c, nil
}

// Programs returns the folder of the cluster's own kubectl, ctr and the others.
func (c *Cluster) Programs() string { return c.layout.Bin }

// Logs returns the folder of the control plane's logs; each node's are in
// Node.Path("log").
func (c *Cluster) Logs() string { return c.layout.Logs() }

// TokenKey returns the file of the key, PEM, that signs tokens of service accounts.
func (c *Cluster) TokenKey() string { return c.layout.TokenKey() }

// Kubectl returns the command kubectl with these arguments.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.layout.Bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	return cmd
}

// StopAPIServer ends the API server; all else of the cluster goes on.
func (c *Cluster) StopAPIServer() error {
	return control.Ask(c.layout.Socket(), "Control.StopAPIServer", control.Nothing{}, &control.Nothing{})
}

// StartAPIServer starts the API server that StopAPIServer ended, and waits until it answers.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := control.Ask(c.layout.Socket(), "Control.StartAPIServer", control.Nothing{}, &control.Nothing{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return controlplane.Ready(ctx, c.Config, func() error { return nil })
}

// settle waits until a new cluster accepts pods on every node.
func (c *Cluster) settle(ctx context.Context, progress io.Writer) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.allowProxies(ctx); err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	// A pod of a namespace is refused as long as this is missing.
	err := Poll(ctx, func() error {
		_, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster: ServiceAccount default: %w", err)
	}
	fmt.Fprintf(progress, "cluster: %d nodes ready, %.1f s\n", c.layout.Nodes, time.Since(start).Seconds())
	return nil
}

// allowProxies binds the role of kube-proxy to its user, as kubeadm does.
func (c *Cluster) allowProxies(ctx context.Context) error {
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:kube-proxy"}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cluster: role of kube-proxy: %w", err)
	}
	return nil
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
