package inventory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

// host returns a node with two cards whose interfaces the node may use: ens1 of the Ethernet
// card, and ib0 of the InfiniBand card.
func host(t *testing.T) *sysfstest.Node {
	t.Helper()
	n := sysfstest.NewNode(t)
	for dev, a := range map[string]*sysfstest.Adapter{"ens1f0np0": n.PF, "ens1f0v0": n.VFs[0], "ib0": n.InfiniBand} {
		n.Link("sys/class/net/"+dev+"/device", "sys/bus/pci/devices/"+a.Function.Address)
	}
	n.Set("sys/class/net/veth7/operstate", "up\n") // the interface of a container
	for upper, lower := range map[string]string{"bond0": "ens1f0np0", "vlan9": "bond0"} {
		n.Link("sys/class/net/"+upper+"/lower_"+lower, "sys/class/net/"+lower)
	}
	return n
}

// tables writes the routing tables of the node from lines of Iface, Destination and Mask.
func tables(n *sysfstest.Node, four, six string) {
	text := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	for line := range strings.Lines(four) {
		f := strings.Fields(line)
		text += fmt.Sprintf("%s\t%s\t0101A8C0\t0003\t0\t0\t100\t%s\t0\t0\t0\n", f[0], f[1], f[2])
	}
	n.Set("proc/1/net/route", text)
	text = ""
	for line := range strings.Lines(six) {
		f := strings.Fields(line)
		text += fmt.Sprintf("%s %s %032d 00 %032d 00000400 00000001 00000000 %s %s\n", f[0], f[1], 0, 0, f[2], f[3])
	}
	n.Set("proc/1/net/ipv6_route", text)
}

// TestHostUse checks which cards are found to be used by the node itself.
func TestHostUse(t *testing.T) {
	const zero6 = "00000000000000000000000000000000"
	for what, c := range map[string]struct {
		four, six, mounts string
		nvme              string // options with the transport and the address
		want              []string
	}{
		"nothing is to be seen":   {},
		"default route":           {four: "ens1f0np0 00000000 00000000", want: []string{"mlx5_0: the node's default route is over ens1f0np0"}},
		"default route of a VF":   {four: "ens1f0v0 00000000 00000000", want: []string{"mlx5_2: the node's default route is over ens1f0v0"}},
		"over a bond with a VLAN": {four: "vlan9 00000000 00000000", want: []string{"mlx5_0: the node's default route is over vlan9"}},
		"IPv6":                    {six: zero6 + " 00 00000003 ib0", want: []string{"mlx5_1: the node's default route is over ib0"}},
		"IPv6, rejected":          {six: zero6 + " 00 00200200 ib0\n" + zero6 + " 00 00200001 lo"},
		"another net":             {four: "ens1f0np0 0000000A 000000FF"},
		"NFS": {
			four:   "ib0 0000140A 0000FFFF\nveth7 0000000A 000000FF", // routes to 10.20/16 and 10/8
			mounts: "30 1 0:40 / /home rw shared:1 - nfs4 files:/home rw,vers=4.2,addr=10.20.0.5\n31 1 0:41 / /x rw - ext4 /dev/sda1 rw\n",
			want:   []string{"mlx5_1: /home (nfs4) is mounted over ib0"},
		},
		"NFS by another way": {four: "ib0 0000140A 0000FFFF\nveth7 0000000A 000000FF", mounts: "30 1 0:40 / /home rw - nfs files:/home rw,addr=10.21.0.5\n"},
		"Lustre": {
			four: "ens1f0np0 0000140A 0000FFFF", mounts: "30 1 0:40 / /scratch rw - lustre 10.20.0.1@o2ib:10.20.0.2@o2ib:/fs rw\n",
			want: []string{"mlx5_0: /scratch (lustre) is mounted over ens1f0np0"},
		},
		"NVMe over fabrics": {
			four: "ib0 0000140A 0000FFFF", nvme: "rdma traddr=10.20.0.9,trsvcid=4420",
			want: []string{"mlx5_1: nvme0 (NVMe over fabrics) is mounted over ib0"},
		},
		"NVMe, by interface": {nvme: "tcp traddr=10.20.0.9,trsvcid=4420,host_iface=ens1f0np0", want: []string{"mlx5_0: nvme0 (NVMe over fabrics) is mounted over ens1f0np0"}},
		"NVMe of its own":    {nvme: "pcie 0000:01:00.0", four: "ib0 0000140A 0000FFFF"},
		"nonsense":           {four: "ens1f0np0 x y\nens1f0np0 0000000Z 0", six: "x 00 0 ib0", mounts: "x\n - \n1 2 3 4 5 - nfs\n1 2 3 4 5 - nfs : addr=,addr=x\n"},
	} {
		t.Run(what, func(t *testing.T) {
			n := host(t)
			if c.four+c.six != "" {
				tables(n, c.four, c.six)
			}
			if c.mounts != "" {
				n.Set("proc/1/mountinfo", c.mounts)
			}
			if transport, address, ok := strings.Cut(c.nvme, " "); ok {
				n.SetAll("sys/class/nvme/nvme0", "transport = "+transport+"\naddress = "+address)
			}
			var got []string
			r := Scan(n.FS())
			for i := range r.Devices {
				for _, why := range r.Devices[i].HostUse {
					got = append(got, r.Devices[i].Name+": "+why)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestIDsStay: a device's ID does not change when a second RDMA device of any name appears on
// its function, nor when the second device disappears.
func TestIDsStay(t *testing.T) {
	n := sysfstest.NewNode(t)
	const address = "0000:d8:00.0"
	m := new(Scanner)
	ids := func() string {
		var all []string
		for _, d := range m.Scan(n.FS()).Devices {
			if slices.Contains(d.PCI, address) {
				all = append(all, d.Name+"="+strings.TrimPrefix(d.ID, address))
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	second := *n.InfiniBand
	second.Name, second.Verbs = "a0", 77
	step := func(what, want string) {
		t.Helper()
		if got := ids(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	step("alone", "mlx5_1=")
	n.Link("sys/class/infiniband_verbs/uverbs77/device", "sys/bus/pci/devices/"+address)
	n.SetAll("sys/class/infiniband_verbs/uverbs77", "ibdev = a0")
	n.Device("infiniband/uverbs77")
	n.SetAll("sys/bus/pci/devices/"+address+"/infiniband/a0", "node_guid = 1:2:3:4")
	n.SetAll("sys/bus/pci/devices/"+address+"/infiniband/a0/ports/1", "state = 4: ACTIVE\nlink_layer = InfiniBand")
	n.Link("sys/class/infiniband/a0", "sys/devices/pci0000:d8/"+address+"/infiniband/a0")
	n.Link("sys/devices/pci0000:d8/"+address+"/infiniband/a0/device", "sys/devices/pci0000:d8/"+address)
	step("with a second", "a0=-a0 mlx5_1=")
	m = new(Scanner) // the agent has been restarted
	step("an agent that has seen neither", "a0=-a0 mlx5_1=")
	n.Remove("sys/class/infiniband/a0")
	step("alone again", "mlx5_1=")
	n.Remove("sys/class/infiniband/mlx5_1")
	n.Link("sys/class/infiniband/a0", "sys/devices/pci0000:d8/"+address+"/infiniband/a0")
	step("its driver has come back with another name", "a0=")
}
