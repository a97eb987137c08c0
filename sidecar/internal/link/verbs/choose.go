package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Granted is a device that the device plugin has granted to this container.
type Granted struct {
	Name string // the kernel's name: mlx5_0
	NUMA int    // -1: not known
}

// Port is a port of a device, with the address chosen for it.
type Port struct {
	Device string
	NUMA   int
	Number int // number of the port, from 1
	Fabric Fabric
	GID    netip.Addr
	Index  int // index of the GID in the port's table
	LID    uint16
	MTU    uint8 // code of ibv_mtu
	Reads  uint8 // outstanding reads of a peer that a queue pair answers
	Rate   int   // Mbit/s, 0: not known
}

func (p Port) String() string {
	return fmt.Sprintf("%s/%d %v gid[%d] %v", p.Device, p.Number, p.Fabric, p.Index, p.GID)
}

// portState is the state of a port as the device reports it.
type portState struct {
	Port   // without its GID
	active bool
	gids   []gidEntry
}

// gidEntry is one entry of a port's table of addresses.
type gidEntry struct {
	index  int
	fabric Fabric
	gid    netip.Addr
}

// errNoPort means that no port can be used.
var errNoPort = errors.New("no usable RDMA port")

// choose returns the port to use: an active one with a usable address, on a NUMA node of
// this process if there is one, then the fastest. mine are the addresses of the network
// interfaces of this namespace; prefer, if valid, is the address of this pod in the job.
func choose(ports []portState, mine []netip.Addr, prefer netip.Addr, numa []int) (Port, error) {
	var usable []Port
	var why []string
	for i := range ports {
		p := &ports[i]
		g, err := p.address(mine, prefer)
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		at := p.Port
		at.GID, at.Index, at.Fabric = g.gid, g.index, g.fabric
		usable = append(usable, at)
	}
	if len(usable) == 0 {
		if len(ports) == 0 {
			why = append(why, "no granted device has a port")
		}
		return Port{}, fmt.Errorf("%w: %s", errNoPort, strings.Join(why, "; "))
	}
	near := func(p *Port) int {
		if slices.Contains(numa, p.NUMA) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(usable, func(a, b Port) int {
		return cmp.Or(cmp.Compare(near(&a), near(&b)), cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Number, b.Number))
	})
	return usable[0], nil
}

// address returns the best entry of the port's table. A RoCE address is usable if it is
// an address of an interface of this namespace: the table of a shared device has those of
// other namespaces, too.
func (p *portState) address(mine []netip.Addr, prefer netip.Addr) (gidEntry, error) {
	name := fmt.Sprintf("%s port %d", p.Device, p.Number)
	if !p.active {
		return gidEntry{}, fmt.Errorf("%s is not active", name)
	}
	best, rank := gidEntry{}, 0
	for _, g := range p.gids {
		if r := g.rank(mine, prefer); r > rank {
			best, rank = g, r
		}
	}
	if rank == 0 {
		return gidEntry{}, fmt.Errorf("%s has no address of a network interface of this namespace among its %d GIDs", name, len(p.gids))
	}
	return best, nil
}

// rank returns how good an address is, 0 if it cannot be used.
func (g *gidEntry) rank(mine []netip.Addr, prefer netip.Addr) int {
	if !g.gid.IsValid() || g.gid.IsUnspecified() {
		return 0
	}
	ip := g.gid.Unmap()
	switch g.fabric {
	case InfiniBand:
		return 1 // all addresses are equal: packets are routed by the LID
	case RoCEv2, RoCEv1:
	default:
		return 0
	}
	if !slices.Contains(mine, ip) {
		return 0
	}
	score := 1
	if g.fabric == RoCEv2 { // routable
		score += 8
	}
	if prefer.IsValid() && ip == prefer.Unmap() {
		score += 4
	}
	switch {
	case ip.Is4():
		score += 2
	case !ip.IsLinkLocalUnicast():
		score++
	}
	return score
}

// matches returns why two sides cannot be connected, or nil.
func (o *offer) matches(peer *offer) error {
	if o.fabric != peer.fabric {
		return fmt.Errorf("this sidecar's %s is on %v, the peer's %s on %v", o.device, o.fabric, peer.device, peer.fabric)
	}
	return nil
}
