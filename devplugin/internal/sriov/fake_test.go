package sriov

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

const (
	pfAddress = "0000:3b:00.0"
	pfMAC     = "98:03:9b:c2:00:00"
	// pciDir has the directories of the functions; the entries of pciDevices are links to
	// them.
	pciDir = "sys/devices/pci0000:3b"
)

// kernel simulates the kernel on a fake sysfs: writes have the same effects as in Linux
// (drivers/pci/iov.c, pci-sysfs.c, rtnetlink.c).
type kernel struct {
	*sysfstest.Tree
	t          *testing.T
	infiniband bool
	vfs        map[int]VF // state that the card keeps of each function
	// bound has, by function, its address at the time when its driver was bound.
	bound map[string]string
	// fail has the errors of writes, by file name or by the text of a step.
	fail map[string]error
	// refuse makes drivers reject every function, which the kernel does not report.
	refuse bool
	// short is the number of functions that are missing from the requested number.
	short int
	log   []string
}

// newKernel returns a node with a card that can have 8 virtual functions and has none.
func newKernel(t *testing.T) *kernel {
	t.Helper()
	k := &kernel{Tree: sysfstest.New(t), t: t, vfs: map[int]VF{}, bound: map[string]string{}, fail: map[string]error{}}
	k.plug()
	return k
}

func pfFunction() sysfstest.Function {
	return sysfstest.Function{Address: pfAddress, Vendor: "15b3", Product: "101d", Driver: "mlx5_core", Group: -1}
}

func (k *kernel) plug() {
	k.HCA(&sysfstest.Adapter{Name: "mlx5_0", Function: pfFunction(), Netdev: "ens1", LinkType: "Ethernet", GID: "fe80::1"})
	k.SRIOV(pfFunction(), 8)
	k.SetAll(path.Join(pciDevices, pfAddress), "sriov_drivers_autoprobe = 1")
	k.Link("sys/class/net/ens1", path.Join(pciDir, pfAddress, "net/ens1"))
	k.Link(path.Join(pciDir, pfAddress, "net/ens1/device"), path.Join(pciDir, pfAddress))
	k.kind("1")
}

func (k *kernel) kind(arphrd string) {
	k.SetAll(path.Join(pciDevices, pfAddress, "net/ens1"), "type = "+arphrd)
	k.infiniband = arphrd == "32"
}

// unplug removes the card.
func (k *kernel) unplug() {
	k.numvfs(0)
	k.Remove(path.Join(pciDevices, pfAddress))
	k.Remove("sys/class")
	k.Remove("sys/devices")
}

func (k *kernel) host() *Host { return &Host{Root: k.Root, Links: links{k}, Attributes: attributes{k}} }

// said returns the writes since the last call, one per line.
func (k *kernel) said() string {
	text := strings.Join(k.log, "\n")
	k.log = nil
	return text
}

func (k *kernel) note(what string) error {
	k.log = append(k.log, what)
	return k.fail[what]
}

func (k *kernel) Read(name string) (net.HardwareAddr, map[int]VF, error) {
	if name != "ens1" {
		return nil, nil, ErrAbsent
	}
	mac, err := net.ParseMAC(pfMAC)
	return mac, maps.Clone(k.vfs), err
}

func vfAddress(i int) string { return fmt.Sprintf("0000:3b:%02x.%x", (i+2)/8, (i+2)%8) }

func (k *kernel) numvfs(n int) {
	for i := range k.vfs {
		k.Remove(path.Join(pciDevices, pfAddress, fmt.Sprintf("virtfn%d", i)))
		k.unbind(vfAddress(i))
		k.Remove(path.Join(pciDevices, vfAddress(i)))
	}
	k.vfs = map[int]VF{}
	for i := range n {
		f := sysfstest.Function{Address: vfAddress(i), Vendor: "15b3", Product: "101e", Group: -1}
		k.Remove(path.Join(pciDir, f.Address))
		k.PCI(f)
		k.Link(path.Join(pciDir, pfAddress, fmt.Sprintf("virtfn%d", i)), path.Join(pciDir, f.Address))
		k.vfs[i] = VF{Number: i, Trust: TrustDisabled}
		if attribute(filepath.Join(k.Root, pciDevices, pfAddress), "sriov_drivers_autoprobe") == "1" {
			k.bind(f.Address)
		}
	}
	k.SetAll(path.Join(pciDevices, pfAddress), fmt.Sprintf("sriov_numvfs = %d", n))
}

func (k *kernel) bind(address string) {
	k.Bind(sysfstest.Function{Address: address}, "mlx5_core")
	for i, vf := range k.vfs {
		if vfAddress(i) != address {
			continue
		}
		k.bound[address] = vf.Hardware.String()
		if k.infiniband {
			guid := strings.ReplaceAll(vf.Hardware.String(), ":", "")
			for len(guid) < 16 {
				guid += "0"
			}
			k.SetAll(path.Join(pciDevices, address, "infiniband/mlx5_9"), fmt.Sprintf("node_guid = %s:%s:%s:%s", guid[:4], guid[4:8], guid[8:12], guid[12:]))
		}
	}
}

func (k *kernel) unbind(address string) {
	k.Bind(sysfstest.Function{Address: address}, "")
	k.Remove(path.Join(pciDevices, address, "infiniband"))
	delete(k.bound, address)
}

// write performs a write to sysfs.
func (k *kernel) write(file, value string) error {
	name, _ := strings.CutPrefix(file, k.Root+"/")
	if err := k.note(path.Base(name) + "=" + value); err != nil {
		return err
	}
	switch path.Base(name) {
	case "sriov_numvfs":
		n, err := strconv.Atoi(value)
		if err != nil {
			return syscall.EINVAL
		}
		if n > 0 && len(k.vfs) > 0 {
			return syscall.EBUSY
		}
		k.numvfs(max(n-k.short, 0))
	case "sriov_drivers_autoprobe":
		k.SetAll(path.Join(pciDevices, pfAddress), "sriov_drivers_autoprobe = "+value)
	case "unbind":
		k.unbind(value)
	case "drivers_probe":
		if !k.refuse {
			k.bind(value)
		}
	default:
		return syscall.ENOENT
	}
	return nil
}

// set performs a change through rtnetlink.
func (k *kernel) set(name string, s Step) error {
	if err := k.note(s.String()); err != nil {
		return err
	}
	vf, ok := k.vfs[s.VF]
	if name != "ens1" || !ok {
		return syscall.ENODEV
	}
	if s.Kind == SetTrust {
		vf.Trust = Trust(s.Value)
	} else {
		address, err := net.ParseMAC(s.Value)
		if err != nil {
			return err
		}
		vf.Hardware = address
	}
	k.vfs[s.VF] = vf
	return nil
}

// attributes and links implement the two interfaces, each with its own method Write.
type (
	attributes struct{ *kernel }
	links      struct{ *kernel }
)

func (a attributes) Write(file, value string) error { return a.write(file, value) }
func (l links) Write(name string, s Step) error     { return l.set(name, s) }

// boundAddresses returns the addresses at the time when the drivers were bound.
func (k *kernel) boundAddresses() []string { return slices.Sorted(maps.Values(k.bound)) }

func quiet(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func wanted(count int) *pool.VirtualFunctions {
	return &pool.VirtualFunctions{PF: "ens1", Count: count, Resize: pool.ResizeNever, Addresses: "generate", Trust: "enabled"}
}
