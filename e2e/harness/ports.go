package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports that tests give to programs lie below those that the kernel gives to
// connections (ip_local_port_range, from 32768 on unless an administrator has changed it): an
// outgoing connection of another process must not have one before its program listens.
const (
	portsFrom = 20_000
	portsTo   = 32_000
	portTries = 1_000
)

// FreePorts finds TCP ports of 127.0.0.1 on which no process listens. Another listener may
// take one before it is used; then the program that was to listen says so.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := portsFrom + rand.IntN(portsTo-portsFrom)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // it is in use
		}
		defer l.Close() // only at the end, so that all differ
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports: %d tries among %d to %d found %d", n, portTries, portsFrom, portsTo, len(ports))
}
