package node

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// join gives the node its address and its routes. The keeper has put eth0 into
// the node's network namespace before.
func join(s *Spec) error {
	lines := []string{
		"link set lo up",
		"address add " + s.Address + " dev eth0",
		"link set eth0 up",
		"route add default via " + s.Gateway,
	}
	for _, r := range s.Routes {
		lines = append(lines, "route add "+r.Pods+" via "+r.Via)
	}
	if err := IP(lines...); err != nil {
		return err
	}
	return Forward()
}

// IP runs commands of ip(8), one a line, in this network namespace.
func IP(lines ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Forward lets this network namespace forward packets.
func Forward() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("forward packets: %w", err)
	}
	return nil
}
