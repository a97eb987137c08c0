// Command outrigger-devplugin is the agent of a node: it offers the node's HCAs and copy
// engines to the kubelet.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// options are the flags.
type options struct {
	config, root, hostRoot      string
	kubeletDir, injection, cdi  string
	grantSocket, memlockMax     string
	podResources, criSocket     string
	cgroupRoot                  string
	listen, logLevel, logFormat string
	interval                    time.Duration
	json                        bool
}

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	cmd := rootCommand()
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-devplugin:", err)
		return 1
	}
	return 0
}

func rootCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "outrigger-devplugin",
		Short: "offer a node's RDMA cards and copy engines to Kubernetes",
		Long: `outrigger-devplugin is the agent that runs on each node, as a DaemonSet. It looks
for RDMA cards (HCAs) and their virtual functions, for I/OAT channels bound to
vfio-pci and for user work queues of DSA, and offers them to the kubelet as
outrigger.dev/hca, outrigger.dev/ioat and outrigger.dev/dsa. A configuration
file selects which device is offered as what; without one every device is
offered for exclusive use. With a pool of the kind ether the agent also makes
packet sockets for containers that ask for outrigger.dev/ether.

A device is healthy while it can carry a message: one of its ports is active,
its driver is bound, its device file is there. The kubelet is told when that
changes. Devices and drivers may come after the agent, and the kubelet may
restart at any time.

With a sriov section in its configuration the agent makes virtual functions;
"outrigger-devplugin sriov plan" prints what it would do.

A sidecar that was given a device may ask the agent to raise its limit of locked
memory; everyone else is refused. That needs the node's PID namespace and
CAP_SYS_RESOURCE; packet sockets need CAP_SYS_ADMIN and CAP_NET_RAW. See
docs/devices.md for all that the agent needs.

Begin with "outrigger-devplugin inventory" on the node: it prints what the agent
sees, and why a device cannot be used. It needs no privileges.`,
		Example: `  outrigger-devplugin inventory
  outrigger-devplugin inventory --config pools.yaml --json
  outrigger-devplugin sriov plan --config pools.yaml
  outrigger-devplugin --config /etc/outrigger/pools.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), &o) },
	}
	p := cmd.PersistentFlags()
	p.StringVar(&o.config, "config", "", "pools of devices, YAML or JSON (default: every device, exclusively)")
	p.StringVar(&o.root, "root", "/", "where this process sees the node's sys and dev directories")
	p.StringVar(&o.podResources, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's socket that tells which container has which device")
	f := cmd.Flags()
	f.StringVar(&o.hostRoot, "host-root", "/", "where the kubelet sees the node's dev directory")
	f.StringVar(&o.kubeletDir, "kubelet-dir", api.DevicePluginPath, "the kubelet's directory of device plugins")
	f.StringVar(&o.injection, "injection", "kubelet", "who adds device files to a container: kubelet, or cdi for the container runtime")
	f.StringVar(&o.cdi, "cdi-dir", "/var/run/cdi", "where the container runtime reads CDI files, with --injection=cdi")
	f.StringVar(&o.grantSocket, "grant-socket", names.GrantSocket, "raise sidecars' locked memory by requests on this socket; the path is the same on the node (empty: nowhere)")
	f.StringVar(&o.memlockMax, "memlock-max", "64GiB", "the most locked memory that a sidecar may be granted, or unlimited")
	f.StringVar(&o.criSocket, "cri-socket", "/run/containerd/containerd.sock", "the container runtime's socket")
	f.StringVar(&o.cgroupRoot, "cgroup-root", "/", "the kubelet's cgroup root, as /proc/PID/cgroup of a pod's process shows it")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "time between two looks at the devices")
	f.StringVar(&o.listen, "listen", "127.0.0.1:9419", "serve /metrics, /healthz and /readyz here (empty: nowhere)")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	cmd.AddCommand(inventoryCommand(&o), sriovCommand(&o))
	return cmd
}
