package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeKubelet behaves toward device plugins as a kubelet does: it empties the directory when
// it starts, accepts registrations, and watches each registered plugin.
type fakeKubelet struct {
	api.UnimplementedRegistrationServer
	t    *testing.T
	dir  string
	grpc *grpc.Server
	wg   sync.WaitGroup

	mu       sync.Mutex
	refuse   int                         // number of registrations to refuse
	ignore   int                         // number of registrations to accept without watching the plugin
	devices  map[string]string           // the listed devices of each resource, in the order of receipt: "id", or "!id" if unhealthy
	clients  map[string]*grpc.ClientConn // by resource
	versions []string
	changed  chan struct{}
}

func startKubelet(t *testing.T, dir string) *fakeKubelet {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	k := &fakeKubelet{t: t, dir: dir, grpc: grpc.NewServer(), devices: map[string]string{}, clients: map[string]*grpc.ClientConn{}, changed: make(chan struct{}, 1)}
	api.RegisterRegistrationServer(k.grpc, k)
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k.wg.Go(func() {
		if err := k.grpc.Serve(l); err != nil {
			t.Error(err)
		}
	})
	return k
}

// stop ends the kubelet as in a crash: its socket file stays until the kubelet is started
// again.
func (k *fakeKubelet) stop() {
	k.mu.Lock()
	for _, c := range k.clients {
		_ = c.Close()
	}
	k.mu.Unlock()
	k.grpc.Stop()
	k.wg.Wait()
}

func (k *fakeKubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse > 0 {
		k.refuse--
		return nil, fmt.Errorf("not now")
	}
	k.versions = append(k.versions, r.Version)
	if k.ignore > 0 {
		k.ignore--
		return &api.Empty{}, nil
	}
	c, err := grpc.NewClient("unix:"+filepath.Join(k.dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	if old := k.clients[r.ResourceName]; old != nil {
		_ = old.Close() // the newest registration counts
	}
	k.clients[r.ResourceName] = c
	k.wg.Go(func() { k.watch(r.ResourceName, c) })
	return &api.Empty{}, nil
}

func (k *fakeKubelet) watch(resource string, c *grpc.ClientConn) {
	stream, err := api.NewDevicePluginClient(c).ListAndWatch(context.Background(), &api.Empty{})
	if err != nil {
		return
	}
	for {
		r, err := stream.Recv()
		k.mu.Lock()
		if err != nil {
			k.devices[resource] = "stopped"
		} else {
			k.devices[resource] = told(r.Devices)
		}
		k.mu.Unlock()
		select {
		case k.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func told(devices []*api.Device) string {
	words := make([]string, len(devices))
	for i, d := range devices {
		words[i] = d.ID
		if d.Health != api.Healthy {
			words[i] = "!" + d.ID
		}
		if d.Topology != nil {
			words[i] += fmt.Sprintf("@%d", d.Topology.Nodes[0].ID)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// patience is how long the tests wait for an expected event. It bounds a hang, and does not
// measure speed.
const patience = 30 * time.Second

// expect waits until the devices of a resource are the wanted ones.
func (k *fakeKubelet) expect(resource, want string) {
	k.t.Helper()
	deadline := time.After(patience)
	for {
		k.mu.Lock()
		got := k.devices[resource]
		k.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-k.changed:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			k.t.Fatalf("the kubelet sees %q of %s, not %q", got, resource, want)
		}
	}
}

// client returns a client of a plugin, as the kubelet uses it.
func (k *fakeKubelet) client(resource string) api.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return api.NewDevicePluginClient(k.clients[resource])
}
