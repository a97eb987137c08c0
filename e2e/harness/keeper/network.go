package keeper

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness/node"
)

// network makes the nodes' network: a bridge in the keeper's own namespace, and the routes to
// every node's pods.
func (k *keeper) network() error {
	// Sockets and locks of the control plane's programs stay in here.
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := unix.Sethostname([]byte("control-plane")); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	lines := []string{
		"link set lo up",
		"link add br0 type bridge",
		"address add " + address + "/24 dev br0",
		"link set br0 up",
		// So that packets to Services are sent at all, and kube-proxy's rules
		// see them.
		"route add " + services + " dev br0",
	}
	for i := 1; i <= k.layout.Nodes; i++ {
		lines = append(lines, fmt.Sprintf("route add "+nodePods+" via %s", i, nodeAddress(i)))
	}
	if err := node.IP(lines...); err != nil {
		return err
	}
	return node.Forward()
}

// connect gives a node its network device: one end of a cable whose other end
// is in the bridge. Both go when the node's namespace goes.
func connect(name string, pid int) error {
	return node.IP(
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", name, pid),
		fmt.Sprintf("link set %s master br0 up", name),
	)
}
