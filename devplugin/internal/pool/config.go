// Package pool decides which device is offered as which resource. It parses the configuration
// file with the pools, and selects devices by it.
package pool

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
)

// Config is the configuration file, YAML or JSON.
type Config struct {
	// Pools are tried in order: a device belongs to the first pool that selects it, and thus
	// to one resource at most.
	Pools []Pool `json:"pools"`
	// SRIOV are the virtual functions to make when the plugin starts, and when a
	// physical function appears.
	SRIOV []VirtualFunctions `json:"sriov,omitempty"`
}

// Sharing is whether one or several containers may use a device.
type Sharing string

// The values of Sharing.
const (
	Exclusive Sharing = "exclusive"
	Shared    Sharing = "shared"
)

// HostUse is whether a pool includes devices that the node itself uses.
type HostUse string

// The values of HostUse.
const (
	HostUseExclude HostUse = "exclude"
	HostUseInclude HostUse = "include"
)

// Placement is which of several shared devices a container gets.
type Placement string

// The values of Placement.
const (
	Spread Placement = "spread"
	Pack   Placement = "pack"
)

// Pool is a resource and the selection of its devices.
type Pool struct {
	// Resource is the name that pods request. The default is that of the kind:
	// outrigger.dev/hca, /ioat, /dsa or /ether.
	Resource string `json:"resource,omitempty"`
	// Kind is hca, ioat, dsa or ether.
	Kind inventory.Kind `json:"kind"`
	// Interface is the interface of the pods for which ether gives packet sockets. If it is
	// empty, it is the interface with the pod's default route, or else the only Ethernet
	// interface that is up.
	Interface string `json:"interface,omitempty"`
	// Select restricts the devices of the kind; an empty selector selects all of them.
	Select Selector `json:"select,omitempty"`
	// Count is the maximum number of devices in the pool, in the order of their IDs; 0 for
	// all. The pools after it get the remaining devices.
	Count int `json:"count,omitempty"`
	// Sharing is exclusive (the default) or shared. Ether is always shared.
	Sharing Sharing `json:"sharing,omitempty"`
	// Shares is the number of containers to which a shared device is offered. The default of
	// ether is etherShares.
	Shares int `json:"shares,omitempty"`
	// Placement of shares is spread (the default), which chooses the devices with the fewest
	// other containers, or pack.
	Placement Placement `json:"placement,omitempty"`
	// HostUse is exclude (the default), which excludes cards over which the node itself has
	// its default route or mounted storage, or include. A card in select.names is included.
	HostUse HostUse `json:"hostUse,omitempty"`
	// RDMACM adds /dev/infiniband/rdma_cm to each HCA.
	RDMACM bool `json:"rdmaCM,omitempty"`
}

// Selector is a conjunction: a device must match every list that is not empty,
// and matches a list when it matches one of its entries.
type Selector struct {
	Vendors   []string             `json:"vendors,omitempty"`   // PCI vendor IDs: "15b3"
	Products  []string             `json:"products,omitempty"`  // PCI device IDs: "101e"
	Drivers   []string             `json:"drivers,omitempty"`   // names of kernel drivers, such as mlx5_core
	Names     []string             `json:"names,omitempty"`     // the device's own name or PCI address
	PFs       []string             `json:"pfs,omitempty"`       // name, interface or PCI address of the physical function
	Functions []inventory.Function `json:"functions,omitempty"` // pf, vf, software
	LinkTypes []string             `json:"linkTypes,omitempty"` // infiniband, ethernet
	NUMA      []int                `json:"numa,omitempty"`      // NUMA nodes; -1 is unknown
	Modes     []string             `json:"modes,omitempty"`     // modes of DSA queues: dedicated, shared
	Labels    []string             `json:"labels,omitempty"`    // names of DSA queues, as set with accel-config
}

// VirtualFunctions is the number of virtual functions that a physical function must have, and
// their settings.
type VirtualFunctions struct {
	// PF is the PCI address or a network interface of the physical function.
	PF string `json:"pf"`
	// Count is the number of virtual functions.
	Count int `json:"count"`
	// Resize is whether the number of virtual functions may change if the physical function
	// already has some. The kernel removes all of them for that.
	Resize Resize `json:"resize,omitempty"`
	// Trust allows the functions to change their addresses and to receive traffic for other
	// addresses: enabled, disabled, or empty to leave it unchanged.
	Trust string `json:"trust,omitempty"`
	// Addresses is keep (the default) or generate: a MAC address and, on InfiniBand, GUIDs
	// that are derived from the physical function's address and the number, so that they are
	// the same after every boot.
	Addresses string `json:"addresses,omitempty"`
}

// Resize is when virtual functions may be removed to make another number of them.
type Resize string

// The values of Resize.
const (
	ResizeNever    Resize = "never"    // the default
	ResizeWhenFree Resize = "whenFree" // only while no container has one of the virtual functions
	ResizeAlways   Resize = "always"   // at any time: running containers can lose their virtual functions
)

// Default offers every device of every kind for exclusive use.
func Default() *Config {
	c := &Config{}
	for _, k := range inventory.Kinds {
		c.Pools = append(c.Pools, Pool{Kind: k})
	}
	c.complete()
	return c
}

// Parse reads a configuration. Unknown and repeated fields are errors: a typing error in a
// selector would offer devices that the administrator wanted to keep.
func Parse(text []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, err
	}
	c.complete()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

var kindResources = map[inventory.Kind]string{
	inventory.HCA: names.ResourceHCA, inventory.IOAT: names.ResourceIOAT, inventory.DSA: names.ResourceDSA, inventory.Ether: names.ResourceEther,
}

// complete sets the defaults.
func (c *Config) complete() {
	for i := range c.Pools {
		p := &c.Pools[i]
		if p.Resource == "" {
			p.Resource = kindResources[p.Kind]
		}
		if p.Kind == inventory.Ether {
			p.completeEther()
		}
		if p.Sharing == "" {
			p.Sharing = Exclusive
		}
	}
	for i := range c.SRIOV {
		if c.SRIOV[i].Addresses == "" {
			c.SRIOV[i].Addresses = "keep"
		}
		if c.SRIOV[i].Resize == "" {
			c.SRIOV[i].Resize = ResizeNever
		}
	}
}

// at returns an error about the field with the given path.
func at(path, format string, args ...any) error {
	return fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
}
