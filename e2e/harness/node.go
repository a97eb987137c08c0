package harness

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/node"
)

// Node is one node of a cluster. A node that a test stopped is the test's to
// start again.
type Node struct {
	Name string

	cluster *Cluster
}

// Nodes returns the cluster's nodes, running or stopped.
func (c *Cluster) Nodes() []*Node {
	var nodes []*Node
	for _, name := range c.layout.Names() {
		nodes = append(nodes, &Node{Name: name, cluster: c})
	}
	return nodes
}

// Node returns the node of that name.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.Nodes() {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("the cluster has no node %q, only %s", name, strings.Join(c.layout.Names(), ", "))
}

// Path returns a file of the node as the machine sees it; the node sees its folders
// log and kubelet as /var/log and /var/lib/kubelet.
func (n *Node) Path(name string) string { return filepath.Join(n.cluster.layout.NodeDir(n.Name), name) }

// StopKubelet ends the kubelet; its pods go on, and no kubelet reports on them.
func (n *Node) StopKubelet() error { return n.ask("Control.Stop", node.Kubelet) }

// StartKubelet starts the kubelet that StopKubelet ended.
func (n *Node) StartKubelet() error { return n.ask("Control.Start", node.Kubelet) }

// RestartContainerd ends containerd and starts it; containers go on.
func (n *Node) RestartContainerd() error {
	return errors.Join(n.ask("Control.Stop", node.Containerd), n.ask("Control.Start", node.Containerd))
}

// Stop ends the node and everything on it at once, as a power failure does.
func (n *Node) Stop() error {
	return control.Ask(n.cluster.layout.Socket(), "Control.StopNode", n.Name, &control.Nothing{})
}

// Start starts a node that Stop ended, with the disk that it had.
func (n *Node) Start() error {
	return control.Ask(n.cluster.layout.Socket(), "Control.StartNode", n.Name, &control.Nothing{})
}

// Running lists the programs that run: containerd, kubelet, kube-proxy.
func (n *Node) Running() ([]string, error) {
	var names []string
	err := control.Ask(n.socket(), "Control.Running", control.Nothing{}, &names)
	return names, err
}

// Load imports archives of images.
func (n *Node) Load(archives ...string) error {
	for _, archive := range archives {
		absolute, err := filepath.Abs(archive)
		if err != nil {
			return fmt.Errorf("load %s: %w", archive, err)
		}
		if err := n.ask("Control.Load", absolute); err != nil {
			return err
		}
	}
	return nil
}

// Command returns a program to run in the node's namespaces, ready to run: it sees
// the node's processes, mounts, devices and network. Every cluster program is
// in its PATH. It gets SIGTERM when the process that Command started is ended
// in any way: that one is nsenter, which passes no signals on.
func (n *Node) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	pid, err := control.Pid(n.socket())
	if err != nil {
		return nil, fmt.Errorf("node %s does not run: %w", n.Name, err)
	}
	enter := []string{
		"--target=" + strconv.Itoa(pid), "--all", "--",
		"setpriv", "--pdeathsig=TERM",
		"env", "PATH=" + n.cluster.layout.Bin + ":/usr/sbin:/usr/bin:/sbin:/bin",
	}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...), nil
}

// WaitReady waits until the API server has the node as Ready.
func (n *Node) WaitReady(ctx context.Context) error { return n.wait(ctx, true) }

// WaitLost waits until the API server has the node as not Ready.
func (n *Node) WaitLost(ctx context.Context) error { return n.wait(ctx, false) }

func (n *Node) wait(ctx context.Context, ready bool) error {
	err := Poll(ctx, func() error {
		found, err := n.cluster.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if isReady(found) != ready {
			return fmt.Errorf("its Ready condition is not yet %t", ready)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("node %s: %w; its logs are in %s", n.Name, err, n.Path("log"))
	}
	return nil
}

func (n *Node) socket() string { return n.Path("control.sock") }

func (n *Node) ask(method, argument string) error {
	return control.Ask(n.socket(), method, argument, &control.Nothing{})
}
