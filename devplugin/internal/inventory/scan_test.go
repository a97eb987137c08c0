package inventory

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

var update = flag.Bool("update", false, "write the answers in testdata again")

// story formats the report for a reader.
func story(r Report) string {
	var b strings.Builder
	for i := range r.Devices {
		d := &r.Devices[i]
		fmt.Fprintf(&b, "%s %s name=%s pci=%v id=%s:%s driver=%s numa=%d files=%v\n", d.Kind, d.ID, d.Name, d.PCI, d.Vendor, d.Product, d.Driver, d.NUMA, d.Files)
		if r := d.RDMA; r != nil {
			fmt.Fprintf(&b, "  %s pf=%v vf=%d vfs=%d/%d netdevs=%v guid=%s\n", r.Function, r.PF, r.VF, r.VFs, r.VFsMax, r.Netdevs, r.NodeGUID)
			for _, p := range r.Ports {
				fmt.Fprintf(&b, "  port %d %s %s %s %q\n", p.Number, p.LinkType, p.State, p.Physical, p.Rate)
				for _, g := range p.GIDs {
					fmt.Fprintf(&b, "    gid %d %s %s %s\n", g.Index, g.Value, g.Type, g.Netdev)
				}
			}
		}
		if q := d.Queue; q != nil {
			fmt.Fprintf(&b, "  queue of %s %s label=%s entries=%d priority=%d threshold=%d copy=%d batch=%d\n", q.Device, q.Mode, q.Label, q.Entries, q.Priority, q.Threshold, q.CopyMax, q.BatchMax)
		}
		for _, p := range d.Problems {
			fmt.Fprintf(&b, "  problem: %s\n", p)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning %s: %s\n", w.Path, w.Problem)
	}
	return b.String()
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestWholeNode(t *testing.T) {
	n := sysfstest.NewNode(t)
	n.SoftRoCE()
	compare(t, "node", story(Scan(n.FS())))
}

// TestProblems: the text of each problem of a device names the remedy or the state.
func TestProblems(t *testing.T) {
	n := sysfstest.NewNode(t)
	n.Port(n.PF, "1: DOWN", "3: Disabled")
	n.Port(n.InfiniBand, "2: INIT", "5: LinkUp")
	n.Remove("dev/infiniband/uverbs2")
	n.Remove("sys/class/infiniband_verbs/uverbs3")
	n.Bind(n.Channels[0], "ioatdma")
	n.Bind(n.Channels[1], "")
	n.Remove("sys/bus/pci/devices/" + n.Channels[2].Address + "/iommu_group")
	n.QueueState(n.Accelerators[0], 0, "disabled")
	n.SetAll("sys/bus/dsa/devices/dsa2", "pasid_enabled = 0")
	compare(t, "problems", story(Scan(n.FS())))
}

// TestSharedGroup: functions that share an IOMMU group are one device, which is usable only if
// no function of the group has another driver.
func TestSharedGroup(t *testing.T) {
	tree := sysfstest.New(t)
	for i := range 3 {
		tree.Channel(sysfstest.Function{Address: fmt.Sprintf("0000:00:04.%d", i), Vendor: "8086", Product: fmt.Sprintf("2f2%d", i), Driver: "vfio-pci", Group: 7})
	}
	tree.PCI(sysfstest.Function{Address: "0000:00:05.0", Vendor: "8086", Product: "2f28", Driver: "pcieport", Group: 7})
	compare(t, "group", story(Scan(tree.FS())))
	tree.PCI(sysfstest.Function{Address: "0000:00:05.1", Vendor: "8086", Product: "2f29", Driver: "e1000", Group: 7})
	if d := Scan(tree.FS()).Devices; len(d) != 1 || d[0].Healthy() {
		t.Errorf("a group with a function of the host's is usable: %+v", d)
	}
}

func TestNothingLoaded(t *testing.T) {
	if got := story(Scan(sysfstest.New(t).FS())); got != "" {
		t.Errorf("an empty node has %s", got)
	}
}

func TestNaturalOrder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"mlx5_2", "mlx5_10", -1},
		{"mlx5_10", "mlx5_2", 1},
		{"a", "a", 0},
		{"a1", "a01", -1},
		{"a", "ab", -1},
		{"", "a", -1},
		{"9b", "10a", -1},
		{"x2", "y1", -1},
	} {
		if got := naturally(c.a, c.b); got != c.want {
			t.Errorf("naturally(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestIsAddress(t *testing.T) {
	for name, want := range map[string]bool{
		"0000:3b:00.0": true, "10000:00:1f.7": true, "virtual": false, "": false, "0000:3b:00": false,
		"0000:3b:00.0x": false, "0000:3B:00.0": false, "../..": false,
	} {
		if isAddress(name) != want {
			t.Errorf("isAddress(%q) = %t", name, !want)
		}
	}
}

// TestNoText: a device whose name is not text is left out, with a warning that is text.
func TestNoText(t *testing.T) {
	tree := sysfstest.New(t)
	for _, name := range []string{"mlx\xff", "\x1b[31m", "a\u202eb", "rxe0"} {
		tree.Set(filepath.Join("sys/class/infiniband", name, "node_type"), "1: CA")
	}
	r := Scan(tree.FS())
	if len(r.Devices) != 1 || r.Devices[0].ID != "rxe0" {
		t.Errorf("devices: %+v", r.Devices)
	}
	if len(r.Warnings) != 3 {
		t.Errorf("%d warnings, want 3: %+v", len(r.Warnings), r.Warnings)
	}
	for _, w := range r.Warnings {
		if !isText(w.Path) || !strings.HasPrefix(w.Path, "sys/class/infiniband/\"") {
			t.Errorf("warning %+v", w)
		}
	}
}
