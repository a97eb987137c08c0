// Package devices is the format in which the device plugin describes a container's
// devices to the sidecar. The plugin writes one environment variable per resource, and
// the sidecar reads all of them. The kubelet merges the variables of several resources,
// so each has its own name.
package devices

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// EnvPrefix is the prefix of the variables: OUTRIGGER_DEVICES_HCA for
// outrigger.dev/hca.
const EnvPrefix = "OUTRIGGER_DEVICES_"

// Bounds of a variable. A node has tens of devices; a variable with more is a mistake.
const (
	valueMax   = 64 << 10
	devicesMax = 256
)

// Device is one device of the container.
type Device struct {
	// Kind is hca, ioat, dsa or ether.
	Kind string `json:"kind"`
	// Name is the kernel's name of the device: mlx5_0, wq0.1, a PCI address. For ether it
	// is the interface of the pod for which the node's agent makes packet sockets, or
	// DefaultInterface.
	Name string `json:"name"`
	// PCI are the addresses of its functions; an I/OAT device has one for each
	// channel.
	PCI []string `json:"pci,omitempty"`
	// NUMA is the NUMA node of the device; -1 if it is not known.
	NUMA int `json:"numa"`
	// Files are the device files in the container; ether has none.
	Files []string `json:"files"`
	// LinkType of an HCA is infiniband or ethernet.
	LinkType string `json:"linkType,omitempty"`
	// Shared is whether other containers use the device too.
	Shared bool `json:"shared,omitempty"`
}

// KindEther is the kind of a device that stands for packet sockets (api/grant).
const KindEther = "ether"

// DefaultInterface is the Name of a device of the kind ether if the agent chooses the
// interface. Linux allows no interface of this name.
const DefaultInterface = "default"

// Env returns the variable's name for a resource: the name after the domain, in
// capitals, with _ for characters that a variable's name cannot have.
func Env(resource string) string {
	return EnvPrefix + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, path.Base(resource))
}

// Encode returns the variable's value.
func Encode(list []Device) string {
	b, err := json.Marshal(list)
	if err != nil {
		panic("devices: " + err.Error()) // strings, numbers and lists of them always encode
	}
	return string(b)
}

// FromEnv reads every variable of an environment in the form of os.Environ, in
// the order of their names.
func FromEnv(environ []string) ([]Device, error) {
	variables := slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return !strings.HasPrefix(v, EnvPrefix) })
	slices.Sort(variables)
	var all []Device
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		list, err := parse(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; the device plugin and the sidecar are of different versions, or the pod sets the variable itself", name, err)
		}
		if all = append(all, list...); len(all) > devicesMax {
			return nil, fmt.Errorf("%s: more than %d devices in all", name, devicesMax)
		}
	}
	return all, nil
}

func parse(value string) ([]Device, error) {
	if len(value) > valueMax {
		return nil, fmt.Errorf("longer than %d bytes", valueMax)
	}
	var list []Device
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, err
	}
	for i := range list {
		d := &list[i]
		switch {
		case !slices.Contains([]string{"hca", "ioat", "dsa", KindEther}, d.Kind):
			return nil, fmt.Errorf("device %d is of the unknown kind %q", i, d.Kind)
		case d.Name == "" || len(d.Files) == 0 && d.Kind != KindEther:
			return nil, fmt.Errorf("device %d has no name or no file", i)
		}
		for _, f := range d.Files {
			if path.Clean(f) != f || !strings.HasPrefix(f, "/dev/") {
				return nil, fmt.Errorf("device %d has the file %q, which is not below /dev", i, f)
			}
		}
	}
	return list, nil
}
