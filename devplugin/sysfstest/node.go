package sysfstest

import (
	"fmt"
	"testing"
)

// Node is a whole machine: two NUMA nodes, each with an HCA, four I/OAT channels and a DSA
// accelerator. Node 0 has an Ethernet HCA with two virtual functions, and node 1 has an
// InfiniBand HCA.
type Node struct {
	*Tree
	PF, InfiniBand *Adapter
	VFs            []*Adapter
	Channels       []Function
	Accelerators   []*Accelerator
}

// NewNode builds a node.
func NewNode(t testing.TB) *Node {
	t.Helper()
	n := &Node{Tree: New(t)}
	mellanox := func(address, product string, numa int) Function {
		return Function{Address: address, Vendor: "15b3", Product: product, Driver: "mlx5_core", NUMA: numa, Group: -1}
	}
	n.PF = &Adapter{Name: "mlx5_0", Function: mellanox("0000:3b:00.0", "101d", 0), Netdev: "ens1f0np0", LinkType: "Ethernet", GID: "fe80:0000:0000:0000:9a03:9bff:fec2:0000"}
	for i := range 2 {
		n.VFs = append(n.VFs, &Adapter{
			Name: fmt.Sprintf("mlx5_%d", i+2), Function: mellanox(fmt.Sprintf("0000:3b:00.%d", i+2), "101e", 0),
			Netdev: fmt.Sprintf("ens1f0v%d", i), LinkType: "Ethernet", Verbs: i + 2, GID: fmt.Sprintf("fe80:0000:0000:0000:9a03:9bff:fec2:%04x", i+2),
		})
	}
	n.InfiniBand = &Adapter{Name: "mlx5_1", Function: mellanox("0000:d8:00.0", "1017", 1), LinkType: "InfiniBand", Verbs: 1, GID: "fe80:0000:0000:0000:9803:9b03:00c2:0001"}
	for _, a := range []*Adapter{n.PF, n.VFs[0], n.VFs[1], n.InfiniBand} {
		n.HCA(a)
	}
	n.SRIOV(n.PF.Function, 8, n.VFs[0].Function, n.VFs[1].Function)
	n.copyEngines()
	return n
}

func (n *Node) copyEngines() {
	for numa, bus := range []string{"00", "80"} {
		for i := range 4 {
			f := Function{Address: fmt.Sprintf("0000:%s:04.%d", bus, i), Vendor: "8086", Product: "2021", Driver: "vfio-pci", NUMA: numa, Group: 10*numa + i + 30}
			n.Channel(f)
			n.Channels = append(n.Channels, f)
		}
	}
	for numa, bus := range []string{"6a", "e7"} {
		a := &Accelerator{Number: 2 * numa, Function: Function{Address: "0000:" + bus + ":01.0", Vendor: "8086", Product: "0b25", Driver: "idxd", NUMA: numa, Group: -1}}
		n.DSA(a)
		n.WorkQueue(a, 0, "user", "dedicated")
		n.WorkQueue(a, 1, "user", "shared")
		n.WorkQueue(a, 2, "kernel", "dedicated")
		n.Accelerators = append(n.Accelerators, a)
	}
}

// SoftRoCE adds an rxe device on an interface.
func (n *Node) SoftRoCE() *Adapter {
	a := &Adapter{Name: "rxe0", Netdev: "eth0", LinkType: "Ethernet", Verbs: 9, GID: "fe80:0000:0000:0000:5054:00ff:fe12:3456"}
	n.HCA(a)
	return a
}
