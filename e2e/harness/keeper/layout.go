// Package keeper is the process that holds the test cluster together. It is the
// first process's child in namespaces of its own; every program of the cluster
// is below it, so that the cluster ends when it ends. The control plane runs in
// the keeper's network, where a bridge is the nodes' network.
package keeper

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/outrigger-hpc/outrigger/e2e/harness/controlplane"
	"github.com/outrigger-hpc/outrigger/e2e/harness/node"
)

// The cluster's addresses. They exist only in its own network namespaces.
const (
	address  = "10.77.0.1"    // the control plane's and the name server's
	network  = "10.77.0.%d"   // the nodes', from 11
	podRange = "10.78.0.0/16" // all pods
	nodePods = "10.78.%d.0/24"
	services = "10.79.0.0/16"
	apiPort  = 6443
)

// nodesMax is how many nodes the addresses suffice for. Memory suffices for fewer.
const nodesMax = 200

// Layout describes a cluster. All programs that use the cluster read its file.
type Layout struct {
	Dir     string   // all files of the cluster; gone with it
	Bin     string   // the programs, as hack/kube/build makes them
	CNI     string   // the folder of the CNI plugins
	Public  string   // where the API server is reached from the machine, host:port
	Sandbox string   // the image that holds a pod's namespaces
	Images  []string // archives that every node imports before its kubelet starts
	Version string   // the tag of the images in them
	Nodes   int      // how many; they are called node1, node2, ...
}

// layoutFile is a Layout in its folder.
const layoutFile = "cluster.json"

// Write makes the cluster's folder and writes the Layout there.
func (l *Layout) Write() error {
	if l.Nodes < 1 || l.Nodes > nodesMax {
		return fmt.Errorf("cluster: %d nodes; from 1 to %d are possible", l.Nodes, nodesMax)
	}
	if err := os.MkdirAll(l.path("log"), 0o755); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return os.WriteFile(l.path(layoutFile), text, 0o644)
}

// ReadLayout reads the Layout of the cluster in dir.
func ReadLayout(dir string) (*Layout, error) {
	text, err := os.ReadFile(filepath.Join(dir, layoutFile))
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	l := &Layout{}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", layoutFile, err)
	}
	return l, nil
}

// cgroup returns the cgroup above those of all pods, which belongs to this cluster alone.
func (l *Layout) cgroup() string { return "/" + filepath.Base(l.Dir) }

func (l *Layout) path(name string) string { return filepath.Join(l.Dir, name) }

// Socket returns the path of the socket on which the keeper serves requests; see Control.
func (l *Layout) Socket() string { return l.path("keeper.sock") }

// Kubeconfig returns the file by which the machine's programs reach the cluster, as
// a user who may do everything.
func (l *Layout) Kubeconfig() string { return l.plane().Kubeconfig(controlplane.Administrator) }

// TokenKey returns the file of the key that signs tokens of service accounts.
func (l *Layout) TokenKey() string { return l.plane().Path(controlplane.TokenKey) }

// Logs returns the folder of the logs of the control plane's programs.
func (l *Layout) Logs() string { return l.path("log") }

// NodeDir returns the folder of a node.
func (l *Layout) NodeDir(name string) string { return l.path(name) }

// Names lists the nodes.
func (l *Layout) Names() []string {
	names := make([]string, l.Nodes)
	for i := range names {
		names[i] = nodeName(i + 1)
	}
	return names
}

func nodeName(i int) string { return "node" + strconv.Itoa(i) }

func nodeAddress(i int) string { return fmt.Sprintf(network, 10+i) }

func (l *Layout) plane() *controlplane.Plane {
	return &controlplane.Plane{
		Dir: l.path("plane"), Bin: l.Bin, Services: services, Public: l.Public,
		Address: net.ParseIP(address), Port: apiPort, EtcdPort: 2379, PeerPort: 2380,
	}
}

// node returns the Spec of the i-th node.
func (l *Layout) node(i int, plane *controlplane.Plane) *node.Spec {
	name := nodeName(i)
	s := &node.Spec{
		Name: name, Dir: l.NodeDir(name), Bin: l.Bin, CNI: l.CNI, Sandbox: l.Sandbox, Images: l.Images,
		Address: nodeAddress(i) + "/24", Gateway: address, DNS: address,
		Pods: fmt.Sprintf(nodePods, i), Range: podRange,
		CA: plane.Path("ca.crt"), Kubeconfig: plane.Kubeconfig(name), ProxyKubeconfig: plane.Kubeconfig(node.Proxy),
		Cgroup: filepath.Join(l.cgroup(), name),
	}
	for other := 1; other <= l.Nodes; other++ {
		if other != i {
			s.Routes = append(s.Routes, node.Route{Pods: fmt.Sprintf(nodePods, other), Via: nodeAddress(other)})
		}
	}
	return s
}
