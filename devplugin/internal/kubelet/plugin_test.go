package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/offer"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hca = "outrigger.dev/hca"

// rig is a node with a plugin for its HCAs, and with a directory in which a kubelet can be
// started.
type rig struct {
	t      *testing.T
	node   *sysfstest.Node
	ledger *offer.Ledger
	dir    string
	plugin *Plugin
	stop   func() error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	//nolint:usetesting // a short path: the name of a socket has 107 bytes, and t.TempDir's may be longer
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, err := pool.Parse([]byte("pools: [{kind: hca, select: {functions: [pf]}}, {kind: ioat}]"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, node: sysfstest.NewNode(t), ledger: offer.New(c), dir: dir}
	r.scan()
	return r
}

func (r *rig) scan() { r.ledger.Update(inventory.Scan(r.node.FS()).Devices) }

func (r *rig) config() Config {
	return Config{
		Resource: hca, Dir: r.dir, HostDev: "/host/dev", Retry: 5 * time.Millisecond, Look: 20 * time.Millisecond, Watch: 300 * time.Millisecond,
		GrantSocket: "/run/agent/grant.sock", Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	}
}

// start runs a plugin until stop or the end of the test.
func (r *rig) start() {
	r.plugin = New(r.config(), r.ledger)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.plugin.Run(ctx) }()
	var once sync.Once
	r.stop = func() (err error) {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	r.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) kubelet() *fakeKubelet {
	k := startKubelet(r.t, r.dir)
	r.t.Cleanup(k.stop)
	return k
}

const bothPFs = "0000:3b:00.0@0 0000:d8:00.0@1"

// TestKubeletComesLater: the plugin may start before the kubelet, even if the kubelet's
// directory does not exist.
func TestKubeletComesLater(t *testing.T) {
	r := newRig(t)
	if err := os.Remove(r.dir); err != nil {
		t.Fatal(err)
	}
	r.start()
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k := r.kubelet()
	k.expect(hca, bothPFs)
	if diff := cmp.Diff([]string{"v1beta1"}, k.versions); diff != "" {
		t.Error(diff)
	}
}

// TestKubeletThatDoesNotAsk: a kubelet that accepts a plugin and cannot connect to it reports
// no error to the plugin, so the plugin registers again.
func TestKubeletThatDoesNotAsk(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	k.ignore = 2
	r.start()
	k.expect(hca, bothPFs)
	// A kubelet may request the devices before the plugin has received the acceptance.
	for end := time.Now().Add(10 * time.Second); r.plugin.Registrations() < 3 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(3 * r.config().Watch)
	if n := r.plugin.Registrations(); n != 3 {
		t.Errorf("%d registrations with a kubelet that watches, want 3", n)
	}
}

// TestHealthFlips: a cable is unplugged, a card disappears, and both come back. The kubelet
// receives each change without a request.
func TestHealthFlips(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	r.start()
	k.expect(hca, bothPFs)
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { r.node.Port(r.node.PF, "1: DOWN", "2: Polling") }, "!0000:3b:00.0@0 0000:d8:00.0@1"},
		{func() { r.node.Unplug(r.node.InfiniBand) }, "!0000:3b:00.0@0 !0000:d8:00.0@1"},
		{func() { r.node.Port(r.node.PF, "4: ACTIVE", "5: LinkUp") }, "!0000:d8:00.0@1 0000:3b:00.0@0"},
		{func() { r.replug() }, bothPFs},
	} {
		step.do()
		r.scan()
		r.plugin.Changed()
		k.expect(hca, step.want)
	}
}

func (r *rig) replug() {
	r.node.Remove("sys/bus/pci/devices/" + r.node.InfiniBand.Function.Address)
	r.node.HCA(r.node.InfiniBand)
}

// TestLongNames: for any name of a resource, the socket has a unique name that fits into the
// kubelet's directory.
func TestLongNames(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	for _, resource := range []string{
		hca, strings.Repeat("a", 48) + ".example.com/b", strings.Repeat("a.", 120) + "example/" + strings.Repeat("b", 63),
		strings.Repeat("a.", 120) + "example/" + strings.Repeat("b", 62) + "c",
	} {
		c := r.config()
		c.Resource = resource
		p := New(c, r.ledger)
		name := filepath.Base(p.socket())
		if path := "/var/lib/kubelet/device-plugins/" + name + ".new"; len(path) > 107 || seen[name] {
			t.Errorf("%s: %s has %d bytes, seen before: %v", resource, path, len(path), seen[name])
		}
		seen[name] = true
		s, err := p.listen()
		if err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		s.stop()
	}
	if !seen["outrigger.dev-hca.sock"] {
		t.Errorf("a short name has changed: %v", seen)
	}
}

// TestKubeletRestart: a restarted kubelet empties the directory, and the plugin registers
// again without help.
func TestKubeletRestart(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	r.start()
	k.expect(hca, bothPFs)
	for range 3 {
		k.stop()
		k = r.kubelet()
		k.expect(hca, bothPFs)
	}
}

// TestWatchIsLost: if the kubelet loses its connection but is still alive, the plugin
// registers again.
func TestWatchIsLost(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	r.start()
	k.expect(hca, bothPFs)
	first := r.plugin.Registrations()
	k.mu.Lock()
	_ = k.clients[hca].Close()
	k.mu.Unlock()
	deadline := time.Now().Add(patience)
	for r.plugin.Registrations() == first {
		if time.Now().After(deadline) {
			t.Fatal("the plugin has not registered again")
		}
		time.Sleep(time.Millisecond)
	}
	k.expect(hca, bothPFs)
}

// TestPluginRestart: a restarted plugin has the same socket and the same devices.
func TestPluginRestart(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	r.start()
	k.expect(hca, bothPFs)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	k.expect(hca, "stopped")
	if _, err := os.Stat(r.plugin.socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	r.start()
	k.expect(hca, bothPFs)
}

// TestSocketLeftBehind: a plugin that was killed leaves its socket file, and its successor
// replaces the file.
func TestSocketLeftBehind(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: New(r.config(), r.ledger).socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r.start()
	k.expect(hca, bothPFs)
}

// TestReplaced: two plugins of one resource would replace each other's socket forever. The
// older one ends and does not remove the socket of the younger one.
func TestReplaced(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	r.start()
	k.expect(hca, bothPFs)
	older := r.stop
	deadline := time.Now().Add(patience)
	wait := func(until func() bool, fault string) {
		t.Helper()
		for !until() {
			if time.Now().After(deadline) {
				t.Fatal(fault)
			}
			time.Sleep(time.Millisecond)
		}
	}
	wait(r.plugin.Registered, "the kubelet has the devices of a plugin that is not registered")
	replaced := New(r.config(), r.ledger)
	ctx, cancel := context.WithCancel(t.Context())
	younger := make(chan error, 1)
	go func() { younger <- replaced.Run(ctx) }()
	wait(func() bool { return replaced.Registered() && !r.plugin.Registered() }, "both plugins are still there")
	if err := older(); !errors.Is(err, ErrReplaced) {
		t.Errorf("the older plugin ended with %v", err)
	}
	if identify(replaced.socket()) == absent {
		t.Error("the younger plugin's socket is gone")
	}
	cancel()
	if err := <-younger; err != nil {
		t.Error(err)
	}
}

// TestRefusedRegistration: after a refusal, the plugin registers again.
func TestRefusedRegistration(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	k.refuse = 3
	r.start()
	k.expect(hca, bothPFs)
}

func TestAllocate(t *testing.T) {
	r := newRig(t)
	k := r.kubelet()
	r.start()
	k.expect(hca, bothPFs)
	c := k.client(hca)
	o, err := c.GetDevicePluginOptions(t.Context(), &api.Empty{})
	if err != nil || !o.GetPreferredAllocationAvailable || o.PreStartRequired {
		t.Errorf("options %v, %v", o, err)
	}
	preferred, err := c.GetPreferredAllocation(t.Context(), &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: []string{"0000:3b:00.0", "0000:d8:00.0"}, MustIncludeDeviceIDs: []string{"0000:d8:00.0"}, AllocationSize: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := preferred.ContainerResponses[0].DeviceIDs; !cmp.Equal(got, []string{"0000:d8:00.0"}) {
		t.Errorf("preferred %v", got)
	}
	got, err := c.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"0000:d8:00.0"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{
		Envs:    map[string]string{"OUTRIGGER_GRANT_SOCKET": "/run/agent/grant.sock", "OUTRIGGER_DEVICES_HCA": `[{"kind":"hca","name":"mlx5_1","pci":["0000:d8:00.0"],"numa":1,"files":["/dev/infiniband/uverbs1"],"linkType":"infiniband"}]`},
		Devices: []*api.DeviceSpec{{ContainerPath: "/dev/infiniband/uverbs1", HostPath: "/host/dev/infiniband/uverbs1", Permissions: "rw"}},
		Mounts:  []*api.Mount{{ContainerPath: "/run/agent", HostPath: "/run/agent", ReadOnly: true}},
	}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	_, err = c.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"0000:00:04.0"}}}})
	if err == nil || !strings.Contains(err.Error(), "has no device") {
		t.Errorf("a channel was allocated as an HCA: %v", err)
	}
	if given, refused := r.plugin.Allocations(); given != 1 || refused != 1 {
		t.Errorf("%d given, %d refused", given, refused)
	}
}

// TestAllocateCDI: with CDI, the container runtime adds the files, and the answer to the
// kubelet has only the names.
func TestAllocateCDI(t *testing.T) {
	r := newRig(t)
	config := r.config()
	config.CDI = func(resource, device string) string { return resource + "=" + device }
	h, err := r.ledger.Allocate(hca, []string{"0000:d8:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	got := New(config, r.ledger).response(h)
	if len(got.Devices) != 0 || len(got.CdiDevices) != 1 || got.CdiDevices[0].Name != "outrigger.dev/hca=0000:d8:00.0" {
		t.Errorf("response %v", got)
	}
}

// TestAllocateWithoutFiles: a device without files has no description for the container runtime,
// which would otherwise find no device of that name; the container gets the agent's socket.
func TestAllocateWithoutFiles(t *testing.T) {
	r := newRig(t)
	config := r.config()
	config.CDI = func(resource, device string) string { return resource + "=" + device }
	got := New(config, r.ledger).response(&offer.Handout{Devices: []string{"ether"}, Env: map[string]string{"A": "b"}})
	if len(got.Devices)+len(got.CdiDevices) != 0 || len(got.Mounts) != 1 || got.Envs["OUTRIGGER_GRANT_SOCKET"] == "" {
		t.Errorf("response %v", got)
	}
}

// TestBefore: an allocation is refused while the devices that containers hold are not known.
func TestBefore(t *testing.T) {
	r := newRig(t)
	var cause error
	c := r.config()
	c.Before = func(context.Context) error { return cause }
	s := &server{plugin: New(c, r.ledger)}
	ask := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"0000:3b:00.0"}}}}
	for _, cause = range []error{errors.New("not known"), nil} {
		if _, err := s.Allocate(t.Context(), ask); !errors.Is(err, cause) {
			t.Errorf("%v, want %v", err, cause)
		}
	}
	if given, refused := s.plugin.Allocations(); given != 1 || refused != 1 {
		t.Errorf("%d given, %d refused", given, refused)
	}
}

// TestListFitsTheKubelet: for any number of devices and shares, the list fits into the 4 MiB
// that the kubelet's gRPC client accepts, and has units of each device.
func TestListFitsTheKubelet(t *testing.T) {
	const grpcMax = 4 << 20
	for _, devices := range []int{16, 128, 1024} {
		c, err := pool.Parse([]byte("pools: [{kind: hca, sharing: shared, shares: 1000}]"))
		if err != nil {
			t.Fatal(err)
		}
		l := offer.New(c)
		var all []inventory.Device
		for i := range devices {
			all = append(all, inventory.Device{Kind: inventory.HCA, ID: fmt.Sprintf("10000:%02x:%02x.0", i/256, i%256), Name: fmt.Sprint("mlx5_", i), NUMA: i % 8, Problems: []string{"down"}})
		}
		l.Update(all)
		units := l.Units(hca)
		told := map[string]bool{}
		for _, u := range units {
			id, _, _ := strings.Cut(u.ID, "::")
			told[id] = true
		}
		if size := proto.Size(&api.ListAndWatchResponse{Devices: list(units)}); size > grpcMax || len(told) != devices || devices == 16 && len(units) != 16_000 {
			t.Errorf("%d devices of 1,000 shares: %d units of %d devices, %d bytes", devices, len(units), len(told), size)
		}
		if _, _, cut := l.Cut(hca); cut != (devices > 16) {
			t.Errorf("%d devices of 1,000 shares: cut %v", devices, cut)
		}
		begun := time.Now()
		var available []string
		for _, u := range units {
			available = append(available, u.ID)
		}
		l.Hold(map[string][]string{hca: available})
		l.Update(all)
		if got := l.Prefer(hca, available, nil, 16); len(got) != 16 {
			t.Errorf("%d devices: %d units preferred, want 16", devices, len(got))
		}
		t.Logf("%d devices: all units held, looked at and one preference in %v", devices, time.Since(begun))
	}
}
