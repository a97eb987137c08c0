package inventory

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// emptyRun is the number of consecutive empty entries after which a GID table is not read
// further. Tables have 256 entries, nearly all of them empty, and each read costs a system
// call. Drivers fill tables from the front; there is a hole where an address was removed.
const emptyRun = 8

func (s *scan) ports(dir string) []Port {
	var ports []Port
	for _, name := range s.list(dir) {
		number, err := strconv.Atoi(name)
		if err != nil || number < 1 || number > 254 {
			s.warn(path.Join(dir, name), "not a port number from 1 to 254")
			continue
		}
		if len(ports) == portsMax {
			s.warn(dir, fmt.Sprintf("more than %d ports; the rest is ignored", portsMax))
			break
		}
		ports = append(ports, s.port(path.Join(dir, name), number))
	}
	return ports
}

func (s *scan) port(dir string, number int) Port {
	return Port{
		Number:   number,
		LinkType: strings.ToLower(s.attribute(dir, "link_layer")),
		State:    meaning(s.attribute(dir, "state")),
		Physical: meaning(s.attribute(dir, "phys_state")),
		Rate:     s.attribute(dir, "rate"),
		GIDs:     s.gids(dir),
	}
}

// meaning returns the word in a state that the kernel writes as "4: ACTIVE".
func meaning(state string) string {
	if _, word, found := strings.Cut(state, ":"); found {
		state = word
	}
	return strings.ToLower(strings.TrimSpace(state))
}

func (s *scan) gids(port string) []GID {
	var gids []GID
	for i, empty := 0, 0; i < gidsMax && empty < emptyRun; i++ {
		index := strconv.Itoa(i)
		value := s.attribute(path.Join(port, "gids"), index)
		if strings.Trim(value, "0:") == "" {
			empty++
			continue
		}
		empty = 0
		gids = append(gids, GID{
			Index: i, Value: value,
			Type:   s.attribute(path.Join(port, "gid_attrs", "types"), index),
			Netdev: s.attribute(path.Join(port, "gid_attrs", "ndevs"), index),
		})
	}
	return gids
}

// portProblems returns why an HCA cannot carry messages. One active port is sufficient: the
// second port of a card often has no cable.
func portProblems(ports []Port) []string {
	active := slices.ContainsFunc(ports, func(p Port) bool { return p.State == "active" || p.State == "active_defer" })
	if active {
		return nil
	}
	if len(ports) == 0 {
		return []string{"the device has no port"}
	}
	problems := make([]string, len(ports))
	for i, p := range ports {
		problems[i] = fmt.Sprintf("port %d is %s", p.Number, orUnknown(p.State))
		if p.Physical != "" && p.Physical != "linkup" {
			problems[i] += " (" + p.Physical + ")"
		}
	}
	return problems
}

func orUnknown(state string) string {
	if state == "" {
		return "in an unknown state"
	}
	return state
}
