package grant

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// messageMax bounds the answers of the kubelet and the runtime: a full node has some
// hundred pods.
const messageMax = 16 << 20

// dial returns a connection to a local gRPC server. It is opened at the first use, and
// again after a restart of the server.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax)))
}

// PodResources asks the kubelet which devices its containers were allocated (Kubernetes
// documentation, "Device Plugins", "Monitoring device plugin resources").
type PodResources struct {
	conn *grpc.ClientConn
}

// DialPodResources returns a client of the kubelet's socket.
func DialPodResources(socket string) (*PodResources, error) {
	conn, err := dial(socket)
	return &PodResources{conn}, err
}

// Close ends the connection.
func (p *PodResources) Close() error { return p.conn.Close() }

// Devices implements Allocations. A container that the kubelet does not list
// has none.
func (p *PodResources) Devices(ctx context.Context, namespace, pod, container string) (map[string]int, error) {
	r, err := podresources.NewPodResourcesListerClient(p.conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, pr := range r.PodResources {
		if pr.Namespace != namespace || pr.Name != pod {
			continue
		}
		for _, c := range pr.Containers {
			if c.Name != container {
				continue
			}
			for _, d := range c.Devices {
				count[d.ResourceName] += len(d.DeviceIds)
			}
		}
	}
	return count, nil
}

// Held returns the IDs that containers of the node hold, by resource.
func (p *PodResources) Held(ctx context.Context) (map[string][]string, error) {
	r, err := podresources.NewPodResourcesListerClient(p.conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	held := map[string][]string{}
	for _, pr := range r.PodResources {
		for _, c := range pr.Containers {
			for _, d := range c.Devices {
				held[d.ResourceName] = append(held[d.ResourceName], d.DeviceIds...)
			}
		}
	}
	return held, nil
}

// Allocated returns the IDs of all devices that containers of the node hold, of the
// resources of all device plugins, and the names of devices that DRA drivers allocated:
// the device's name, and the names of its CDI devices.
func (p *PodResources) Allocated(ctx context.Context) ([]string, error) {
	r, err := podresources.NewPodResourcesListerClient(p.conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, pr := range r.PodResources {
		for _, c := range pr.Containers {
			for _, d := range c.Devices {
				ids = append(ids, d.DeviceIds...)
			}
			for _, d := range c.DynamicResources {
				for _, r := range d.ClaimResources {
					ids = append(ids, r.DeviceName)
					for _, x := range r.CdiDevices {
						_, name, _ := strings.Cut(x.Name, "=") // vendor/class=name
						ids = append(ids, name)
					}
				}
			}
		}
	}
	return ids, nil
}

// Labels by which the kubelet marks its containers
// (k8s.io/kubelet, pkg/types/labels.go).
const (
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// CRI asks the container runtime (Kubernetes Container Runtime Interface v1).
type CRI struct {
	conn *grpc.ClientConn
}

// DialCRI returns a client of the runtime's socket.
func DialCRI(socket string) (*CRI, error) {
	conn, err := dial(socket)
	return &CRI{conn}, err
}

// Close ends the connection.
func (c *CRI) Close() error { return c.conn.Close() }

// Container implements Runtime. The owner of the container is read only from the labels
// that the kubelet wrote on the container itself; the pod's own labels are those of its
// sandbox.
func (c *CRI) Container(ctx context.Context, id string) (*Container, error) {
	client := cri.NewRuntimeServiceClient(c.conn)
	list, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	if err != nil {
		return nil, err
	}
	if len(list.Containers) != 1 || list.Containers[0].Id != id {
		return nil, fmt.Errorf("%d containers of the ID %s, not one", len(list.Containers), id)
	}
	found := list.Containers[0]
	out := &Container{
		Namespace: found.Labels[labelNamespace], Pod: found.Labels[labelPod], PodUID: found.Labels[labelUID], Name: found.Labels[labelContainer],
	}
	if out.Namespace == "" || out.Pod == "" || out.PodUID == "" || out.Name == "" {
		return nil, fmt.Errorf("container %s is not the kubelet's", id)
	}
	sandboxes, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: found.PodSandboxId}})
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes.Items {
		if s.Id == found.PodSandboxId {
			out.PodLabels = s.Labels
		}
	}
	return out, nil
}
