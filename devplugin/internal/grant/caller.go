// Package grant is the node's agent for three things that a sidecar needs and may not do
// itself: raising its limit of locked memory, connecting to the sidecars of its job on the
// same node, and making packet sockets in its pod's network namespace
// (api/grant/PROTOCOL.md). It owns the identification of callers, for
// which it trusts the kernel, the container runtime and the kubelet, and never the
// caller, and the bounds on callers.
package grant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Caller is an identified process.
type Caller struct {
	PID                               int
	Namespace, Pod, PodUID, Container string
	// Job is the name of the pod's job, from the pod's labels; "" if it has none.
	Job string
	// Devices is the number of Outrigger devices of the container.
	Devices int
	// Ether are the pools of the kind ether of which the container holds a device.
	Ether []EtherPool
}

func (c *Caller) String() string { return c.Namespace + "/" + c.Pod + "/" + c.Container }

// Container is a container as the container runtime knows it.
type Container struct {
	Namespace, Pod, PodUID, Name string
	PodLabels                    map[string]string
}

// Runtime finds a container by its ID.
type Runtime interface {
	Container(ctx context.Context, id string) (*Container, error)
}

// Allocations counts the devices of a container, by resource.
type Allocations interface {
	Devices(ctx context.Context, namespace, pod, container string) (map[string]int, error)
}

// Directory identifies processes.
type Directory struct {
	// Proc is the proc file system with the callers' processes; the default is /proc.
	// The agent needs the node's PID namespace.
	Proc string
	// CgroupRoot is the kubelet's cgroup root, as in /proc/PID/cgroup; the default is
	// /.
	CgroupRoot  string
	Runtime     Runtime
	Allocations Allocations
	// Resources are the names of resources, of which a caller must hold a device.
	Resources []string
	// Ether are the pools of the kind ether; Resources has their resources, too.
	Ether []EtherPool
	// JobLabels are the labels of a pod that together name its job. A pod without the
	// first of them has no job.
	JobLabels []string
}

// errNoDevice refuses a container without a device (PROTOCOL.md §2).
var errNoDevice = errors.New("the container was not allocated a device of Outrigger's; ask for one in its resource limits")

// Identify identifies a process, or returns why it is refused.
func (d *Directory) Identify(ctx context.Context, pid int) (*Caller, error) {
	text, err := os.ReadFile(filepath.Join(d.proc(), strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("the caller's cgroup: %w", err)
	}
	where, err := parseCgroup(string(text), d.CgroupRoot)
	if err != nil {
		return nil, err
	}
	c, err := d.Runtime.Container(ctx, where.container)
	if err != nil {
		return nil, fmt.Errorf("asking the container runtime: %w", err)
	}
	if c.PodUID != where.podUID {
		return nil, fmt.Errorf("the container runtime says that container %s belongs to pod %s, its cgroup says %s", where.container, c.PodUID, where.podUID)
	}
	devices, err := d.Allocations.Devices(ctx, c.Namespace, c.Pod, c.Name)
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet: %w", err)
	}
	caller := &Caller{PID: pid, Namespace: c.Namespace, Pod: c.Pod, PodUID: c.PodUID, Container: c.Name, Job: d.job(c.PodLabels)}
	for _, r := range d.Resources {
		caller.Devices += devices[r]
	}
	for _, p := range d.Ether {
		if devices[p.Resource] > 0 {
			caller.Ether = append(caller.Ether, p)
		}
	}
	if caller.Devices == 0 {
		return nil, fmt.Errorf("%s: %w", caller, errNoDevice)
	}
	return caller, nil
}

// Origin implements Originator. It returns the pod in whose cgroup the process is;
// empty if it is in none.
func (d *Directory) Origin(pid int) string {
	text, err := os.ReadFile(filepath.Join(d.proc(), strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	where, err := parseCgroup(string(text), d.CgroupRoot)
	if err != nil {
		return ""
	}
	return where.podUID
}

func (d *Directory) proc() string { return cmp.Or(d.Proc, "/proc") }

// job joins the labels' values, which cannot contain a slash (Kubernetes documentation,
// "Labels and Selectors").
func (d *Directory) job(labels map[string]string) string {
	if len(d.JobLabels) == 0 || labels[d.JobLabels[0]] == "" {
		return ""
	}
	values := make([]string, len(d.JobLabels))
	for i, l := range d.JobLabels {
		values[i] = labels[l]
	}
	return strings.Join(values, "/")
}
