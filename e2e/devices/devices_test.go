//go:build cluster

package devices

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/devices/sight"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// cardAndChannel is a request for a card and a channel.
var cardAndChannel = map[string]int64{names.ResourceHCA: 1, names.ResourceIOAT: 1}

// oneOfEach is a request for a card, a channel and a work queue.
var oneOfEach = map[string]int64{names.ResourceHCA: 1, names.ResourceIOAT: 1, names.ResourceDSA: 1}

// noRights is a user without rights, as the images have it.
const noRights = 65532

// standard are the devices that every container has (OCI runtime specification,
// "Default Devices", and a terminal's).
var standard = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/console", "/dev/ptmx", "/dev/pts/ptmx"}

// extra returns the files that a container has beyond those, with their numbers.
func extra(s *sight.Sight) map[string]string {
	files := map[string]string{}
	for name, number := range s.Files {
		if !slices.Contains(standard, name) && !strings.HasPrefix(name, "/dev/pts/") {
			files[name] = number
		}
	}
	return files
}

// told returns the files that the variables tell, as extra would find them.
func told(s *sight.Sight) map[string]string {
	files := map[string]string{}
	for _, d := range s.Devices {
		for _, f := range d.Files {
			files[f] = "1:7"
		}
	}
	return files
}

// Pods of a namespace that enforces "restricted" get a card and a channel of one NUMA node.
// The sidecar has exactly the devices' files, and can open them; the application has none.
// Four pods use all four cards.
func TestAllocation(t *testing.T) {
	t.Run("kubelet", func(t *testing.T) { allocation(t, agent{}) })
	t.Run("CDI", func(t *testing.T) { allocation(t, agent{args: []string{"--injection=cdi"}}) })
}

func allocation(t *testing.T, a agent) {
	r := newRig(t, harness.Restricted)
	r.startAgent(newTree(t), a)
	r.allocatable(names.ResourceHCA, 4)
	r.allocatable(names.ResourceIOAT, 8)
	r.allocatable(names.ResourceDSA, 4)
	var cards []string
	for range 4 {
		name := r.run(&pod{devices: cardAndChannel, user: noRights})
		s := r.see(name, "outrigger")
		if len(s.Devices) != 2 || len(s.Problems) != 0 || s.UID != noRights {
			t.Fatalf("%s: %+v", name, s)
		}
		nodes := map[int]bool{}
		for _, d := range s.Devices {
			nodes[d.NUMA] = true
			if d.Kind == "hca" {
				cards = append(cards, d.Name)
			}
		}
		if len(nodes) != 1 {
			t.Errorf("%s: devices of several NUMA nodes: %+v", name, s.Devices)
		}
		if diff := cmp.Diff(told(s), extra(s)); diff != "" {
			t.Errorf("%s: device files: %s", name, diff)
		}
		if app := r.see(name, "app"); len(app.Devices) != 0 || len(extra(app)) != 0 || app.Socket != "" {
			t.Errorf("the application sees %+v, %v", app, extra(app))
		}
	}
	queue := r.see(r.run(&pod{devices: map[string]int64{names.ResourceDSA: 1}, user: noRights}), "outrigger")
	if diff := cmp.Diff(told(queue), extra(queue)); diff != "" || len(extra(queue)) != 1 {
		t.Errorf("a work queue: %v, %s", extra(queue), diff)
	}
	slices.Sort(cards)
	if diff := cmp.Diff([]string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, cards); diff != "" {
		t.Errorf("cards: %s", diff)
	}
	r.awaitMetric(`allocations_total{outcome="given",resource="outrigger.dev/hca"}`, "4")
}

// A card whose port goes down, or whose driver is unloaded while no pod holds the card, is no
// longer allocatable until it is back; a pod that has it keeps it. (A card that a pod holds
// stays counted while the node does not see it: devplugin/internal/offer TestHeldOutOfSight.)
func TestHealth(t *testing.T) {
	r := newRig(t, harness.Restricted)
	tree := newTree(t)
	r.startAgent(tree, agent{})
	r.allocatable(names.ResourceHCA, 4)
	tree.Unplug(tree.VFs[0])
	r.allocatable(names.ResourceHCA, 3)
	tree.Plug(tree.VFs[0])
	makeDevices(t, tree.Root)
	r.allocatable(names.ResourceHCA, 4)
	r.see(r.run(&pod{devices: map[string]int64{names.ResourceHCA: 4}, user: noRights}), "outrigger")
	tree.Port(tree.InfiniBand, "1: DOWN", "2: Polling")
	r.allocatable(names.ResourceHCA, 3)
	tree.Port(tree.InfiniBand, "4: ACTIVE", "5: LinkUp")
	r.allocatable(names.ResourceHCA, 4)
	channel := tree.Channels[0]
	tree.Bind(channel, "ioatdma")
	r.allocatable(names.ResourceIOAT, 7)
	tree.Bind(channel, "vfio-pci")
	r.allocatable(names.ResourceIOAT, 8)
	tree.QueueState(tree.Accelerators[1], 0, "disabled")
	r.allocatable(names.ResourceDSA, 3)
	tree.QueueState(tree.Accelerators[1], 0, "enabled")
	r.allocatable(names.ResourceDSA, 4)
}

// A pod keeps its devices through a restart of the kubelet and of the plugin: the next pods
// get the other three cards.
func TestRestarts(t *testing.T) {
	for name, restart := range map[string]func(*testing.T, *rig, func()){
		"kubelet": func(t *testing.T, r *rig, _ func()) {
			if err := r.node.StopKubelet(); err != nil {
				t.Fatal(err)
			}
			if err := r.node.StartKubelet(); err != nil {
				t.Fatal(err)
			}
			r.awaitMetric(`registrations_total{resource="outrigger.dev/hca"}`, "2")
			r.awaitMetric(`registrations_total{resource="outrigger.dev/dsa"}`, "2")
		},
		"plugin": func(_ *testing.T, r *rig, again func()) {
			r.endAgent()
			again()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, tree := newRig(t, harness.Restricted), newTree(t)
			again := func() { r.startAgent(tree, agent{}) }
			again()
			r.allocatable(names.ResourceHCA, 4)
			name := r.run(&pod{devices: oneOfEach, user: noRights})
			r.see(name, "app") // all of the pod runs: a kubelet that ends now breaks nothing off
			held := r.see(name, "outrigger").Devices
			restart(t, r, again)
			r.allocatable(names.ResourceHCA, 4)
			rest := r.see(r.run(&pod{devices: map[string]int64{names.ResourceHCA: 3}, user: noRights}), "outrigger").Devices
			all := map[string]bool{}
			for _, d := range append(rest, held...) {
				if d.Kind == "hca" {
					all[d.Name] = true
				}
			}
			if len(rest) != 3 || len(all) != 4 {
				t.Errorf("one pod holds %v, the next one got %v", held, rest)
			}
		})
	}
}

// A pool of the user: only virtual functions, each shared by two containers, with the
// connection manager.
func TestPools(t *testing.T) {
	r, tree := newRig(t, harness.Restricted), newTree(t)
	tree.Set("sys/pools.yaml", `pools: [{kind: hca, resource: example.com/vf, select: {functions: [vf]}, sharing: shared, shares: 2, rdmaCM: true}]`)
	r.startAgent(tree, agent{})
	r.allocatable("example.com/vf", 4)
	users := map[string]int{}
	for range 4 {
		s := r.see(r.run(&pod{devices: map[string]int64{"example.com/vf": 1}, user: noRights}), "outrigger")
		if diff := cmp.Diff(told(s), extra(s)); diff != "" || len(s.Devices) != 1 || len(s.Devices[0].Files) != 2 || !s.Devices[0].Shared {
			t.Fatalf("%+v, files %s", s, diff)
		}
		users[s.Devices[0].Name]++
	}
	if diff := cmp.Diff(map[string]int{"mlx5_2": 2, "mlx5_3": 2}, users); diff != "" {
		t.Error(diff)
	}
}
