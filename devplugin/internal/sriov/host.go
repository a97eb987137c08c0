package sriov

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Links reads and writes the attributes that a network interface's driver provides.
type Links interface {
	// Read returns the permanent address of an interface, nil if the driver does not provide
	// it, and the attributes of its virtual functions, by number.
	Read(name string) (net.HardwareAddr, map[int]VF, error)
	// Write performs a step of kind MAC, GUID or SetTrust.
	Write(name string, s Step) error
}

// Attributes writes attributes of sysfs.
type Attributes interface {
	Write(file, value string) error
}

// Host is a node. Its sysfs is below Root.
type Host struct {
	Root       string
	Links      Links
	Attributes Attributes
}

// NewHost returns the node of this process, whose root directory is mounted at root.
func NewHost(root string) *Host { return &Host{Root: root, Links: Netlink{}, Attributes: files{}} }

// files implements Attributes for the kernel's sysfs.
type files struct{}

// Write implements Attributes. It does not create missing files.
func (files) Write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

const (
	pciDevices = "sys/bus/pci/devices"
	netClass   = "sys/class/net"
	// vfsMax bounds the number of virtual functions that is accepted from a card.
	vfsMax = 4096
)

// Look reads a physical function, given its PCI address or the name of one of its network
// interfaces.
func (h *Host) Look(pf string) (*Function, error) {
	dir := filepath.Join(h.Root, pciDevices, pf)
	if _, err := os.Stat(dir); err != nil {
		address, err := base(filepath.Join(h.Root, netClass, pf, "device"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pf, ErrAbsent)
		}
		dir = filepath.Join(h.Root, pciDevices, address)
	}
	most, err := number(dir, "sriov_totalvfs")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s (%s) has no SR-IOV: it is no physical function, or SR-IOV is off in its firmware or the BIOS", pf, filepath.Base(dir))
	}
	count, err2 := number(dir, "sriov_numvfs")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	f := &Function{Address: filepath.Base(dir), Max: most, Count: count}
	f.Probing = attribute(dir, "sriov_drivers_autoprobe") != "0" // the file exists since Linux 4.12
	if err := h.vfs(dir, f); err != nil {
		return nil, err
	}
	return f, h.link(dir, pf, f)
}

// vfs reads the virtual functions from the PCI bus.
func (h *Host) vfs(dir string, f *Function) error {
	visible := len(names(filepath.Join(dir, "net"))) > 0
	for i := range f.Count {
		link := filepath.Join(dir, fmt.Sprintf("virtfn%d", i))
		address, err := base(link)
		if err != nil {
			return fmt.Errorf("virtual function %d: %w", i, err)
		}
		vf := VF{Number: i, Address: address, Hardware: nodeGUID(link)}
		if driver, err := base(filepath.Join(link, "driver")); err == nil {
			vf.Driver = driver
		}
		interfaces := names(filepath.Join(link, "net"))
		vf.Names = append(interfaces, names(filepath.Join(link, "infiniband"))...)
		// sysfs shows the interfaces of one network namespace.
		vf.Away = vf.Driver != "" && visible && len(interfaces) == 0 && exists(filepath.Join(link, "net"))
		f.VFs = append(f.VFs, vf)
	}
	return nil
}

// link reads the attributes that the network interface provides. It uses the interface that
// the configuration names, or the first one.
func (h *Host) link(dir, pf string, f *Function) error {
	entries, err := os.ReadDir(filepath.Join(dir, "net"))
	if err != nil || len(entries) == 0 {
		return nil // no interface: the plan reports the consequences
	}
	name := entries[0].Name()
	for _, e := range entries {
		if e.Name() == pf {
			name = pf
		}
	}
	f.InfiniBand = attribute(filepath.Join(dir, "net", name), "type") == arphrdInfiniBand
	permanent, vfs, err := h.Links.Read(name)
	if errors.Is(err, ErrAbsent) {
		return nil // sysfs shows another network namespace than this process's
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	f.Interface, f.Identity = name, permanent.String()
	if f.InfiniBand {
		f.Identity = nodeGUID(dir).String()
	}
	for i := range f.VFs {
		vf := &f.VFs[i]
		vf.Trust = vfs[i].Trust
		if !f.InfiniBand {
			vf.Hardware = vfs[i].Hardware
		}
	}
	return nil
}

// arphrdInfiniBand is the hardware type of InfiniBand (Linux, if_arp.h).
const arphrdInfiniBand = "32"

// nodeGUID reads the GUID of the first RDMA device of a PCI function.
func nodeGUID(dir string) net.HardwareAddr {
	entries, err := os.ReadDir(filepath.Join(dir, "infiniband"))
	if err != nil || len(entries) == 0 {
		return nil
	}
	text := attribute(filepath.Join(dir, "infiniband", entries[0].Name()), "node_guid")
	guid, err := net.ParseMAC(strings.ReplaceAll(text, ":", "."))
	if err != nil || len(guid) != 8 || strings.Trim(text, "0:") == "" {
		return nil
	}
	return guid
}

// names returns the names in a directory; none if it does not exist.
func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func base(link string) (string, error) {
	target, err := os.Readlink(link)
	return filepath.Base(target), err
}

func attribute(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func number(dir, name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 || n > vfsMax {
		return 0, fmt.Errorf("%s: %q is not a number from 0 to %d", filepath.Join(dir, name), text, vfsMax)
	}
	return n, nil
}
