package inventory

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Files that describe how the node uses its own interfaces. Process 1 is in the node's network
// and mount namespaces, regardless of the namespaces of this process.
const (
	routes4    = "proc/1/net/route"
	routes6    = "proc/1/net/ipv6_route"
	mountsFile = "proc/1/mountinfo"
	netClass   = "sys/class/net"
	nvmeClass  = "sys/class/nvme"
)

// Bounds of reading these files.
const (
	tableMax = 4 << 20
	lowerMax = 8 // maximum depth of interfaces on top of other interfaces
)

// Flags of a route (Linux, route.h, ipv6_route.h).
const (
	routeUp     = 0x1
	routeReject = 0x200
)

type route struct {
	to  netip.Prefix
	dev string
}

// remote is the set of types of file systems whose data are transferred over the network.
var remote = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "beegfs", "fuse.glusterfs", "9p", "orangefs"}

// server finds addresses in the source and the options of a mount.
var server = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:]+`)

// hostUse returns how the node itself uses each PCI function: for its default route, and for
// mounted storage. If such a card is given to a container for its own use, the container and
// the node depend on the same card.
func (s *scan) hostUse() map[string][]string {
	routes := slices.Concat(s.routes4(), s.routes6())
	use := map[string][]string{}
	note := func(dev, why string) {
		for _, address := range s.functionsOf(dev, 0) {
			if !slices.Contains(use[address], why) {
				use[address] = append(use[address], why)
			}
		}
	}
	for _, r := range routes {
		if r.to.Bits() == 0 {
			note(r.dev, "the node's default route is over "+r.dev)
		}
	}
	for _, m := range s.storage() {
		dev := m.dev
		if dev == "" {
			dev = over(routes, m.server)
		}
		if dev != "" {
			note(dev, m.what+" is mounted over "+dev)
		}
	}
	return use
}

// over returns the interface by which an address is reached: that of the route with the
// longest prefix.
func over(routes []route, to netip.Addr) string {
	best := route{}
	for _, r := range routes {
		if r.to.Contains(to) && (best.dev == "" || r.to.Bits() > best.to.Bits()) {
			best = r
		}
	}
	return best.dev
}

// functionsOf returns the PCI functions of an interface: its own, or those of the interfaces
// below it (of a bond, a bridge or a VLAN).
func (s *scan) functionsOf(dev string, depth int) []string {
	if strings.ContainsAny(dev, "/") || dev == "" || dev == ".." || depth > lowerMax {
		return nil
	}
	dir := path.Join(netClass, dev)
	if address := s.base(path.Join(dir, "device")); isAddress(address) {
		return []string{address}
	}
	var found []string
	for _, name := range s.list(dir) {
		if lower, ok := strings.CutPrefix(name, "lower_"); ok {
			found = append(found, s.functionsOf(lower, depth+1)...)
		}
	}
	return found
}

// lines returns the lines of a table; none if the file cannot be read.
func (s *scan) lines(name string) []string {
	f, err := s.fs.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, tableMax))
	if err != nil {
		s.warn(name, err.Error())
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// routes4 reads the IPv4 table with the columns Iface, Destination, Gateway, Flags, RefCnt,
// Use, Metric and Mask. Addresses are in the byte order of the machine.
func (s *scan) routes4() []route {
	var all []route
	for _, line := range s.lines(routes4) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == "Iface" {
			continue
		}
		to, err := strconv.ParseUint(f[1], 16, 32)
		flags, err2 := strconv.ParseUint(f[3], 16, 32)
		mask, err3 := strconv.ParseUint(f[7], 16, 32)
		if err != nil || err2 != nil || err3 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		var address, net [4]byte
		binary.NativeEndian.PutUint32(address[:], uint32(to))
		binary.NativeEndian.PutUint32(net[:], uint32(mask))
		bits := 0
		for _, b := range net {
			for ; b != 0; b <<= 1 {
				bits++
			}
		}
		all = append(all, route{netip.PrefixFrom(netip.AddrFrom4(address), bits), f[0]})
	}
	return all
}

// routes6 reads the IPv6 table with the columns destination, prefix length, source, prefix
// length, next hop, metric, references, use, flags and interface.
func (s *scan) routes6() []route {
	var all []route
	for _, line := range s.lines(routes6) {
		f := strings.Fields(line)
		if len(f) != 10 || f[9] == "lo" {
			continue
		}
		to, err := hex.DecodeString(f[0])
		bits, err2 := strconv.ParseUint(f[1], 16, 8)
		flags, err3 := strconv.ParseUint(f[8], 16, 32)
		if err != nil || err2 != nil || err3 != nil || len(to) != 16 || bits > 128 || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		all = append(all, route{netip.PrefixFrom(netip.AddrFrom16([16]byte(to)), int(bits)), f[9]})
	}
	return all
}

// mount is storage with the address of its server, or with the interface that it names.
type mount struct {
	what   string
	server netip.Addr
	dev    string
}

// storage returns the storage that the node has mounted over the network: file systems
// (proc_pid_mountinfo(5)), and NVMe over fabrics.
func (s *scan) storage() []mount {
	var all []mount
	for _, line := range s.lines(mountsFile) {
		before, after, ok := strings.Cut(line, " - ")
		f, at := strings.Fields(after), strings.Fields(before)
		if !ok || len(f) < 2 || len(at) < 5 || !slices.Contains(remote, f[0]) {
			continue
		}
		text := f[1]
		if len(f) > 2 {
			// If the source has the server's name, the options have its address.
			for option := range strings.SplitSeq(f[2], ",") {
				if value, found := strings.CutPrefix(option, "addr="); found {
					text += " " + value
				}
			}
		}
		for _, word := range server.FindAllString(text, -1) {
			if a, err := netip.ParseAddr(word); err == nil {
				all = append(all, mount{what: fmt.Sprintf("%s (%s)", at[4], f[0]), server: a})
			}
		}
	}
	for _, name := range s.list(nvmeClass) {
		dir := path.Join(nvmeClass, name)
		if t := s.attribute(dir, "transport"); t != "rdma" && t != "tcp" {
			continue
		}
		m := mount{what: name + " (NVMe over fabrics)"}
		for option := range strings.SplitSeq(s.attribute(dir, "address"), ",") {
			switch key, value, _ := strings.Cut(option, "="); key {
			case "traddr":
				m.server, _ = netip.ParseAddr(value) // otherwise, the interface is named
			case "host_iface":
				m.dev = value
			}
		}
		if m.dev != "" || m.server.IsValid() {
			all = append(all, m)
		}
	}
	return all
}
