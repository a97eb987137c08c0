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

// Errors of Open, in addition to those of a device.
var (
	// ErrBuild means that the program was built without the tag rdma.
	ErrBuild = errors.New("this build has no verbs link: it is the static one; use the image for RDMA")
	// ErrLibrary means that libibverbs is not installed, or lacks a function.
	ErrLibrary = errors.New("libibverbs cannot be used")
)

// Open opens the best port of the granted devices. at is the address of this pod in the
// job, as host:port.
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

// addresses returns the addresses of the network interfaces that this process sees.
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

// preferred returns the address in host:port, or the zero Addr if host is a name.
func preferred(at string) netip.Addr {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(host) // the zero Addr if host is a name
	return a
}

// memoryNodes returns the NUMA nodes whose memory this process may use; none if they are
// not known.
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

// numbers parses a list of the kernel, such as 0-1,3.
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
