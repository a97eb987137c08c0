package grant

import (
	"bufio"
	"errors"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// Bounds of reading the tables of a pod's network namespace, which the pod may fill.
const (
	tableMax      = 4 << 20
	interfacesMax = 256
)

// Flags of a route (Linux, route.h, ipv6_route.h).
const (
	routeUp     = 0x1
	routeReject = 0x200
)

// defaultInterface returns the interface of the default route with the smallest metric in the
// network namespace of the calling thread, of IPv4 before IPv6; empty if there is none.
func defaultInterface() (string, error) {
	for _, table := range []struct {
		file string
		of   func([]string) (string, uint64, bool)
	}{{"route", default4}, {"ipv6_route", default6}} {
		name, best := "", uint64(math.MaxUint64)
		err := lines("/proc/thread-self/net/"+table.file, func(line string) bool {
			if dev, metric, ok := table.of(strings.Fields(line)); ok && metric < best {
				name, best = dev, metric
			}
			return true
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) || name != "" {
			return name, err
		}
	}
	return "", nil
}

// default4 reads a line of the IPv4 table, with the columns Iface, Destination, Gateway, Flags,
// RefCnt, Use, Metric and Mask. ok reports whether it is a default route.
func default4(f []string) (dev string, metric uint64, ok bool) {
	if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
		return "", 0, false
	}
	flags, err := strconv.ParseUint(f[3], 16, 32)
	metric, err2 := strconv.ParseUint(f[6], 10, 32)
	return f[0], metric, err == nil && err2 == nil && flags&routeUp != 0 && flags&routeReject == 0
}

// default6 reads a line of the IPv6 table, with the columns destination, prefix length, source,
// prefix length, next hop, metric, references, use, flags and interface.
func default6(f []string) (dev string, metric uint64, ok bool) {
	if len(f) != 10 || f[1] != "00" || strings.Trim(f[0], "0") != "" || f[9] == "lo" {
		return "", 0, false
	}
	metric, err := strconv.ParseUint(f[5], 16, 32)
	flags, err2 := strconv.ParseUint(f[8], 16, 32)
	return f[9], metric, err == nil && err2 == nil && flags&routeUp != 0 && flags&routeReject == 0
}

// interfaces returns the names of the first interfacesMax interfaces in the network namespace
// of the calling thread (proc_pid_net(5), /proc/net/dev).
func interfaces() (names []string, err error) {
	err = lines("/proc/thread-self/net/dev", func(line string) bool {
		if name, _, ok := strings.Cut(line, ":"); ok && !strings.Contains(name, "|") {
			names = append(names, strings.TrimSpace(name))
		}
		return len(names) < interfacesMax
	})
	return names, err
}

// lines calls do for each line of a table until do returns false.
func lines(file string, do func(string) bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(io.LimitReader(f, tableMax))
	for s.Scan() && do(s.Text()) {
	}
	return s.Err()
}
