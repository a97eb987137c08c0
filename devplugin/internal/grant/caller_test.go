package grant

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// node answers as a container runtime and as a kubelet.
type node struct {
	cri.UnimplementedRuntimeServiceServer
	podresources.UnimplementedPodResourcesListerServer
	containers []*cri.Container
	sandboxes  []*cri.PodSandbox
	pods       []*podresources.PodResources
}

func (n *node) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	out := &cri.ListContainersResponse{}
	for _, c := range n.containers {
		if c.Id == r.Filter.Id {
			out.Containers = append(out.Containers, c)
		}
	}
	return out, nil
}

func (n *node) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: n.sandboxes}, nil
}

func (n *node) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: n.pods}, nil
}

// containerID returns the ID of test container n.
func containerID(n int) string { return fmt.Sprintf("%064x", n) }

// newNode returns a node with one pod. Container 1 is the sidecar with an HCA, 2 the
// application without devices, 3 has a device of another resource, and 4 was not
// started by a kubelet.
func newNode() *node {
	n := &node{}
	for i, name := range []string{"outrigger", "app", "gpu"} {
		n.containers = append(n.containers, &cri.Container{Id: containerID(i + 1), PodSandboxId: "sandbox", Labels: map[string]string{
			labelPod: "job-0", labelNamespace: "ns", labelUID: uid, labelContainer: name, "outrigger.dev/job-name": "forged",
		}})
	}
	n.containers = append(n.containers, &cri.Container{Id: containerID(4), PodSandboxId: "sandbox"})
	n.sandboxes = []*cri.PodSandbox{{Id: "else"}, {Id: "sandbox", Labels: map[string]string{"outrigger.dev/job-name": "job", "outrigger.dev/attempt": "2"}}}
	devices := func(resource string, ids ...string) []*podresources.ContainerDevices {
		return []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}
	}
	n.pods = []*podresources.PodResources{
		{Name: "job-0", Namespace: "elsewhere", Containers: []*podresources.ContainerResources{{Name: "app", Devices: devices("outrigger.dev/hca", "a")}}},
		{Name: "job-0", Namespace: "ns", Containers: []*podresources.ContainerResources{
			{Name: "outrigger", Devices: append(devices("outrigger.dev/hca", "a", "b"), devices("outrigger.dev/ioat", "c")...)},
			{Name: "app", DynamicResources: []*podresources.DynamicResource{{ClaimResources: []*podresources.ClaimResource{
				{DriverName: "dra.example.com", DeviceName: "0000-3b-00-2", CdiDevices: []*podresources.CDIDevice{{Name: "example.com/nic=x"}}},
			}}}},
			{Name: "gpu", Devices: devices("example.com/gpu", "a")},
		}},
	}
	return n
}

func newDirectory(t *testing.T, n *node) *Directory {
	t.Helper()
	runtime, err := DialCRI(serveGRPC(t, func(s *grpc.Server) { cri.RegisterRuntimeServiceServer(s, n) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	kubelet, err := DialPodResources(serveGRPC(t, func(s *grpc.Server) { podresources.RegisterPodResourcesListerServer(s, n) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kubelet.Close() })
	return &Directory{Proc: t.TempDir(), Runtime: runtime, Allocations: kubelet, Resources: []string{"outrigger.dev/hca", "outrigger.dev/ioat"}, JobLabels: []string{"outrigger.dev/job-name", "outrigger.dev/attempt"}}
}

// run puts a process into a container of a pod.
func (d *Directory) run(t *testing.T, pid int, pod, container string) {
	t.Helper()
	dir := filepath.Join(d.Proc, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/kubepods/pod"+pod+"/"+container+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestIdentify(t *testing.T) {
	d := newDirectory(t, newNode())
	d.run(t, 100, uid, containerID(1))
	got, err := d.Identify(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Caller{PID: 100, Namespace: "ns", Pod: "job-0", PodUID: uid, Container: "outrigger", Job: "job/2", Devices: 3}, got); diff != "" {
		t.Error(diff)
	}
}

// TestIdentifyEther: a caller has the pools of the kind ether of which its container holds a
// device, and no others.
func TestIdentifyEther(t *testing.T) {
	n := newNode()
	c := n.pods[1].Containers[0]
	c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: "example.com/net1", DeviceIds: []string{"ether-net1::7"}})
	d := newDirectory(t, n)
	held, other := EtherPool{Resource: "example.com/net1", Interface: "net1"}, EtherPool{Resource: "outrigger.dev/ether"}
	d.Ether = []EtherPool{other, held}
	d.Resources = append(d.Resources, other.Resource, held.Resource)
	d.run(t, 100, uid, containerID(1))
	got, err := d.Identify(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]EtherPool{held}, got.Ether); diff != "" || got.Devices != 4 {
		t.Errorf("%d devices, %s", got.Devices, diff)
	}
}

// TestJob: a pod with only the attempt's label has no job.
func TestJob(t *testing.T) {
	d := Directory{JobLabels: []string{"name", "attempt"}}
	for want, labels := range map[string]map[string]string{"": {"attempt": "1"}, "a/1": {"name": "a", "attempt": "1"}, "a/": {"name": "a"}} {
		if got := d.job(labels); got != want {
			t.Errorf("%v: %q, want %q", labels, got, want)
		}
	}
}

// TestAllocated: the devices of every pod, every plugin and every DRA driver count as in use.
func TestAllocated(t *testing.T) {
	d := newDirectory(t, newNode())
	got, err := d.Allocations.(*PodResources).Allocated(t.Context())
	if diff := cmp.Diff([]string{"a", "a", "b", "c", "0000-3b-00-2", "x", "a"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestHeld: Held returns what containers hold, by resource.
func TestHeld(t *testing.T) {
	d := newDirectory(t, newNode())
	got, err := d.Allocations.(*PodResources).Held(t.Context())
	if err != nil || len(got) == 0 {
		t.Fatal(got, err)
	}
	n := 0
	for _, ids := range got {
		n += len(ids)
	}
	if n != 5 {
		t.Errorf("%v, want 5 units", got)
	}
}

// TestIdentifyRefuses: these callers are refused: the application in the sidecar's pod, a
// container with other devices, a container that the kubelet did not start, a process of the
// node, a process whose cgroup and runtime disagree, and one that has ended.
func TestIdentifyRefuses(t *testing.T) {
	d := newDirectory(t, newNode())
	d.run(t, 2, uid, containerID(2))
	d.run(t, 3, uid, containerID(3))
	d.run(t, 4, uid, containerID(4))
	d.run(t, 5, uid, containerID(5))
	d.run(t, 6, strings.Replace(uid, "0", "1", 1), containerID(1))
	d.run(t, 7, "x", "y")
	for pid, cause := range map[int]string{
		2: "ns/job-0/app: the container was not allocated a device", 3: "ns/job-0/gpu: the container was not allocated", 4: "not the kubelet's",
		5: "0 containers", 6: "belongs to pod", 7: "no pod", 8: "no such file",
	} {
		if c, err := d.Identify(t.Context(), pid); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("process %d: %v, %v, want %q", pid, c, err, cause)
		}
	}
}

// TestRefusesEveryoneElse tests the agent and the directory together: the test's own process
// is refused in a container without a device. In a container with a device, its limit is
// raised.
func TestRefusesEveryoneElse(t *testing.T) {
	d := newDirectory(t, newNode())
	r := newRigFor(t, d)
	d.run(t, os.Getpid(), uid, containerID(2))
	_, err := r.caller(nil).Memlock(t.Context(), 1<<20)
	refused(t, err, "ns/job-0/app: the container was not allocated a device")
	d.run(t, os.Getpid(), uid, containerID(1))
	if got, err := r.caller(nil).Memlock(t.Context(), 1<<20); err != nil || got != 1<<20 {
		t.Errorf("the sidecar: %d, %v", got, err)
	}
}
