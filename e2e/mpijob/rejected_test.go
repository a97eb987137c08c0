//go:build cluster

package mpijob

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// moody is a device plugin that refuses the first allocations, as if a device had failed after
// the scheduler had chosen it.
type moody struct {
	pluginapi.UnimplementedDevicePluginServer
	refusals  atomic.Int32
	allocated atomic.Int32
	stop      chan struct{}
}

const (
	moodyResource = "test.outrigger.dev/moody"
	moodyFile     = "/dev/moody" // what a container is given
)

func (m *moody) ListAndWatch(_ *pluginapi.Empty, out grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	err := out.Send(&pluginapi.ListAndWatchResponse{Devices: []*pluginapi.Device{{ID: "a", Health: pluginapi.Healthy}, {ID: "b", Health: pluginapi.Healthy}}})
	<-m.stop
	return err
}

func (m *moody) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (m *moody) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	if m.refusals.Add(-1) >= 0 {
		return nil, errors.New("not today")
	}
	out := new(pluginapi.AllocateResponse)
	for range r.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/zero", ContainerPath: moodyFile, Permissions: "rw"}},
		})
	}
	m.allocated.Add(1)
	return out, nil
}

// serve offers the plugin to a node's kubelet until the test ends.
func (m *moody) serve(t *testing.T, n *harness.Node) {
	t.Helper()
	dir := n.Path("kubelet/device-plugins")
	path := filepath.Join(dir, "moody.sock")
	_ = os.Remove(path) // of an earlier run
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, m)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		close(m.stop)
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	kubelet, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close() // registered by then
	_, err = pluginapi.NewRegistrationClient(kubelet).Register(t.Context(), &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(path), ResourceName: moodyResource,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A pod that its node rejects is replaced. The job reports why it waits, and uses no restart.
func TestPodRejected(t *testing.T) {
	n := lab.Nodes()[0]
	m := &moody{stop: make(chan struct{})}
	m.refusals.Store(1)
	m.serve(t, n)
	j := example(restricted(t), "moody", "ring", "-rounds", "20")
	j.Spec.Devices = []v1alpha1.DeviceRequest{{Resource: moodyResource, Count: 1}}
	j.Spec.Template.Spec.TopologySpreadConstraints = nil // one node has them
	submit(t, j)
	eventually(t, func() error {
		return saying(t, j, v1alpha1.ConditionPending, v1alpha1.ReasonPodRejected, "not today")
	})
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; deref(s.Restarts) > 0 || s.FirstFailure != nil {
		t.Errorf("a rejected pod is no failure: %+v", s)
	}
}
