package verbs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Errors of Open, beside those of a device.
var (
	// ErrBuild: the program was built without the tag rdma.
	ErrBuild = errors.New("this build has no verbs link: it is the static one; use the image for RDMA")
	// ErrLibrary: libibverbs is not installed, or is not what it should be.
	ErrLibrary = errors.New("libibverbs cannot be used")
)

// Open opens the best port among the granted devices. at is the address that the
// job knows this pod by, as host:port.
func Open(cfg Config, memory link.Memory, granted []Granted, at string) (*Link, error) {
	mine, err := addresses()
	if err != nil {
		return nil, err
	}
	n, err := openDevice(granted, cfg.Peers, func(ports []portState) (Port, error) {
		return choose(ports, mine, preferred(at), memoryNodes())
	})
	if err != nil {
		return nil, fmt.Errorf("verbs: %w", err)
	}
	return newLink(cfg, memory, n)
}

// addresses are those of the network interfaces that this process sees.
func addresses() (list []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("verbs: addresses of this namespace: %w", err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list, nil
}

// preferred is the address in host:port, if it is one and not a name.
func preferred(at string) netip.Addr {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(host) // a name is no address to prefer
	return a
}

// memoryNodes are the NUMA nodes whose memory this process may use; none if that
// is not known.
func memoryNodes() []int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(b), "\n") {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			return numbers(strings.TrimSpace(list))
		}
	}
	return nil
}

// numbers reads a list of the kernel, such as 0-1,3.
func numbers(list string) (all []int) {
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil || b < a || b-a > 1<<10 {
			return nil
		}
		for n := a; n <= b; n++ {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}
