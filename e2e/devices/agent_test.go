//go:build cluster

package devices

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

const agentPort = 9419

// newTree returns a fake node: four HCAs, eight I/OAT channels and four DSA queues,
// half of them on each NUMA node. Each device file is /dev/full by another name.
func newTree(t *testing.T) *sysfstest.Node {
	t.Helper()
	n := sysfstest.NewNode(t)
	n.Device("infiniband/umad0") // which no pod may get
	n.Device("infiniband/issm0")
	// Also the physical function with virtual ones, which is not offered by default.
	n.Set("sys/pools.yaml", "pools: [{kind: hca, select: {functions: [pf, vf]}}, {kind: ioat}, {kind: dsa}]")
	makeDevices(t, n.Root)
	return n
}

// makeDevices replaces the plain files of a tree's dev by character devices.
func makeDevices(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "dev"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 7))); err != nil {
			return err
		}
		return os.Chmod(name, 0o666) // whatever the umask left
	})
	if err != nil {
		t.Fatal(err)
	}
}

// agent has the options with which a test runs the device plugin. The zero value is as in
// docs/devices.md, with the tree's own pools and without SYS_RESOURCE, which machines that run
// the tests may not have.
type agent struct {
	ownPIDs bool // without hostPID
	args    []string
}

// startAgent runs the device plugin as its DaemonSet does, over a fake tree.
func (r *rig) startAgent(tree *sysfstest.Node, a agent) {
	r.t.Helper()
	r.agentName = fmt.Sprintf("agent-%d", r.agents)
	r.agents++
	_, err := r.c.Client.CoreV1().Pods(r.system).Create(r.t.Context(), r.agentPod(tree, a), metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.agents == 1 {
		r.t.Cleanup(func() {
			r.tellLog()
			r.endAgent()
		})
	}
}

// endAgent ends the agent, and waits until the kubelet has removed its resources.
func (r *rig) endAgent() {
	r.t.Helper()
	r.remove(r.system, r.agentName)
	r.nothingAllocatable()
}

// tellLog shows the agent's log when the test has failed.
func (r *rig) tellLog() {
	if r.t.Failed() {
		text, err := r.c.Client.CoreV1().Pods(r.system).GetLogs(r.agentName, &corev1.PodLogOptions{}).DoRaw(context.Background())
		r.t.Logf("the agent's log (%v):\n%s", err, text)
	}
}

func (r *rig) agentPod(tree *sysfstest.Node, a agent) *corev1.Pod {
	no, yes, root, zero := false, true, int64(0), int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: r.agentName},
		Spec: corev1.PodSpec{
			NodeName: r.node.Name, HostPID: !a.ownPIDs, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &zero,
			Containers: []corev1.Container{{
				Name: "agent", Image: r.c.Image("outrigger-devplugin"),
				Args: append([]string{
					"--root=/host", "--host-root=" + tree.Root, "--interval=200ms", "--listen=:9419",
					"--cgroup-root=" + r.cgroupRoot(), "--log-format=json", "--config=/host/sys/pools.yaml",
				}, a.args...),
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsUser: &root,
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}
	for _, m := range []struct {
		name, host, container string
		readOnly              bool
	}{
		{"sys", filepath.Join(tree.Root, "sys"), "/host/sys", true},
		{"dev", filepath.Join(tree.Root, "dev"), "/host/dev", true},
		{"plugins", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/device-plugins", false},
		{"allocations", "/var/lib/kubelet/pod-resources", "/var/lib/kubelet/pod-resources", true},
		{"runtime", "/run/containerd", "/run/containerd", true},
		{"grant", grantDir, grantDir, false},
		{"cdi", "/run/cdi", "/var/run/cdi", false},
	} {
		volume, mount := hostPath(m.name, m.host, m.container, m.readOnly)
		p.Spec.Volumes = append(p.Spec.Volumes, volume)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, mount)
	}
	return p
}
