package pool

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
)

// Bounds of a configuration.
const (
	poolsMax  = 64
	sharesMax = 1000
	vfsMax    = 1024
)

var (
	pciID = regexp.MustCompile(`^[0-9a-f]{4}$`)
	// functionName matches a PCI address, or a name that Linux allows for a network interface
	// (dev_valid_name).
	functionName = regexp.MustCompile(`^[^/:\s\x00]{1,15}$|^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	// resourceName matches a domain and a name, as in qualified names of Kubernetes.
	resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
)

// validate reports every contradiction at once, each with its path.
func (c *Config) validate() error {
	var problems []error
	if len(c.Pools) == 0 {
		problems = append(problems, at("pools", "no pool: the plugin would offer nothing"))
	}
	if len(c.Pools) > poolsMax {
		return at("pools", "%d pools; at most %d", len(c.Pools), poolsMax)
	}
	resources, variables, files := map[string]int{}, map[string]int{}, map[string]int{}
	for i := range c.Pools {
		p, path := &c.Pools[i], fmt.Sprintf("pools[%d]", i)
		problems = append(problems, p.validate(path)...)
		if first, twice := resources[p.Resource]; twice {
			problems = append(problems, at(path+".resource", "%s is pools[%d]'s already; give each pool a resource of its own", p.Resource, first))
			continue
		}
		resources[p.Resource] = i
		variable := devices.Env(p.Resource)
		if first, twice := variables[variable]; twice {
			problems = append(problems, at(path+".resource", "a container could not tell %s from pools[%d]'s: both become %s", p.Resource, first, variable))
		}
		variables[variable] = i
		// The name of the resource is part of the names of its socket and its CDI file
		// (packages kubelet and cdi).
		file := strings.ReplaceAll(p.Resource, "/", "-")
		if first, twice := files[file]; twice {
			problems = append(problems, at(path+".resource", "the files of %s and of pools[%d]'s %s would both be called %s; give it another name", p.Resource, first, c.Pools[first].Resource, file))
		}
		files[file] = i
	}
	problems = append(problems, c.validateInterfaces()...)
	return errors.Join(append(problems, c.validateSRIOV()...)...)
}

func (p *Pool) validate(path string) []error {
	var problems []error
	add := func(field, format string, args ...any) {
		problems = append(problems, at(path+field, format, args...))
	}
	if !slices.Contains(kinds, p.Kind) {
		add(".kind", "%q is not a kind; the kinds are %v", p.Kind, kinds)
		return problems
	}
	if domain, _, _ := strings.Cut(p.Resource, "/"); !resourceName.MatchString(p.Resource) || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		add(".resource", "%q is not a resource name of the form example.com/name outside kubernetes.io", p.Resource)
	}
	if p.Count < 0 {
		add(".count", "%d is negative; 0 takes every device", p.Count)
	}
	if p.HostUse != "" && p.HostUse != HostUseExclude && p.HostUse != HostUseInclude {
		add(".hostUse", "%q is neither exclude nor include", p.HostUse)
	}
	if p.HostUse != "" && p.Kind != inventory.HCA {
		add(".hostUse", "only hca devices carry the node's own traffic, this is an %s pool", p.Kind)
	}
	if p.RDMACM && p.Kind != inventory.HCA {
		add(".rdmaCM", "only an hca has a connection manager, this is an %s pool", p.Kind)
	}
	if p.Kind == inventory.Ether {
		return append(problems, p.validateEther(path)...)
	}
	if p.Interface != "" {
		add(".interface", "only ether has an interface, this is an %s pool", p.Kind)
	}
	return append(append(problems, p.validateSharing(path)...), p.Select.validate(path+".select", p.Kind)...)
}

func (p *Pool) validateSharing(path string) []error {
	if p.Placement != "" && p.Placement != Spread && p.Placement != Pack {
		return []error{at(path+".placement", "%q is neither spread nor pack", p.Placement)}
	}
	if p.Placement != "" && p.Sharing == Exclusive {
		return []error{at(path+".placement", "an exclusive device has one user; write sharing: shared, or remove placement")}
	}
	switch p.Sharing {
	case Exclusive:
		if p.Shares != 0 {
			return []error{at(path+".shares", "%d shares of an exclusive device; write sharing: shared, or remove shares", p.Shares)}
		}
	case Shared:
		if p.Shares < 2 || p.Shares > sharesMax {
			return []error{at(path+".shares", "%d is not a number of shares from 2 to %d", p.Shares, sharesMax)}
		}
		if p.Kind == inventory.IOAT {
			return []error{at(path+".sharing", "an I/OAT channel has one user: the kernel lets one process open a VFIO group")}
		}
		if p.Kind == inventory.DSA && slices.Contains(p.Select.Modes, "dedicated") {
			return []error{at(path+".select.modes", "a dedicated work queue has one user; a shared pool takes modes: [shared]")}
		}
	default:
		return []error{at(path+".sharing", "%q is neither exclusive nor shared", p.Sharing)}
	}
	return nil
}

func (s *Selector) validate(path string, kind inventory.Kind) []error {
	var problems []error
	for field, ids := range map[string][]string{"vendors": s.Vendors, "products": s.Products} {
		for i, id := range ids {
			if !pciID.MatchString(id) {
				problems = append(problems, at(fmt.Sprintf("%s.%s[%d]", path, field, i), `%q is not a PCI ID of four lower-case hexadecimal digits in quotes, such as "15b3"`, id))
			}
		}
	}
	problems = append(problems, oneOf(path+".functions", s.Functions, inventory.Physical, inventory.Virtual, inventory.Software)...)
	problems = append(problems, oneOf(path+".linkTypes", s.LinkTypes, inventory.InfiniBand, inventory.Ethernet)...)
	problems = append(problems, oneOf(path+".modes", s.Modes, "dedicated", "shared")...)
	for i, n := range s.NUMA {
		if n < inventory.NoNUMA {
			problems = append(problems, at(fmt.Sprintf("%s.numa[%d]", path, i), "%d is not a NUMA node; -1 is a device whose node is unknown", n))
		}
	}
	if len(s.PFs)+len(s.Functions)+len(s.LinkTypes) > 0 && kind != inventory.HCA {
		problems = append(problems, at(path, "pfs, functions and linkTypes select among hca devices, this is an %s pool", kind))
	}
	if len(s.Modes)+len(s.Labels) > 0 && kind != inventory.DSA {
		problems = append(problems, at(path, "modes and labels select among dsa devices, this is an %s pool", kind))
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

func oneOf[S ~string](path string, list []S, allowed ...S) []error {
	var problems []error
	for i, v := range list {
		if !slices.Contains(allowed, v) {
			problems = append(problems, at(fmt.Sprintf("%s[%d]", path, i), "%q is not one of %v", v, allowed))
		}
	}
	return problems
}

func (c *Config) validateSRIOV() []error {
	var problems []error
	seen := map[string]int{}
	for i := range c.SRIOV {
		v, path := &c.SRIOV[i], fmt.Sprintf("sriov[%d]", i)
		if first, twice := seen[v.PF]; twice {
			problems = append(problems, at(path+".pf", "%q is sriov[%d]'s already", v.PF, first))
		}
		seen[v.PF] = i
		if !functionName.MatchString(v.PF) || v.PF == "." || v.PF == ".." {
			problems = append(problems, at(path+".pf", "%q is neither a PCI address nor a network interface", v.PF))
		}
		if v.Count < 1 || v.Count > vfsMax {
			problems = append(problems, at(path+".count", "%d is not a number of functions from 1 to %d", v.Count, vfsMax))
		}
		problems = append(problems, oneOf(path+".resize", []Resize{v.Resize}, ResizeNever, ResizeWhenFree, ResizeAlways)...)
		problems = append(problems, oneOf(path+".trust", []string{v.Trust}, "", "enabled", "disabled")...)
		problems = append(problems, oneOf(path+".addresses", []string{v.Addresses}, "keep", "generate")...)
	}
	return problems
}
