package manifest

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// server removes what a worker has for its ssh server: the command that starts it, its
// port, and the probes with which the kubelet would end the container.
func (c *conversion) server(app map[string]any) {
	line := append(words(list(app, "command")), words(list(app, "args"))...)
	serves := slices.ContainsFunc(line, func(w string) bool {
		return slices.ContainsFunc(strings.Fields(w), func(f string) bool { return path.Base(f) == "sshd" })
	})
	if serves {
		delete(app, "command")
		delete(app, "args")
		c.note("dropped: the worker's command, which is an ssh server")
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		if p := tree(app, probe); len(p) > 0 && (serves || isSSH(tree(p, "tcpSocket")["port"])) {
			delete(app, probe)
			c.note("dropped: %s of the worker, which looks for an ssh server", probe)
		}
	}
	ports := slices.DeleteFunc(list(app, "ports"), func(p any) bool {
		port, _ := p.(map[string]any)
		own := isSSH(port["containerPort"]) || isSSH(port["name"])
		if own {
			c.note("dropped: port %v of the worker, of an ssh server", port["containerPort"])
		}
		return own
	})
	if app["ports"] != nil && len(ports) == 0 {
		delete(app, "ports")
	} else if len(ports) > 0 {
		app["ports"] = ports
	}
}

// isSSH reports whether a port is one that images of mpi-operator use for ssh.
func isSSH(port any) bool {
	return slices.Contains([]string{"22", "2222", "ssh", "sshd"}, fmt.Sprint(port))
}

// launcher moves what the launcher's container has, except for its command, to the pods
// that run the program.
func (c *conversion) launcher(launcher, pod, app map[string]any) {
	spec := tree(launcher, "template", "spec")
	from, _ := c.runs(spec)
	if from == nil {
		return
	}
	join := func(field string, into, of map[string]any, key string) {
		for _, v := range list(of, field) {
			e, _ := v.(map[string]any)
			if e == nil {
				continue
			}
			same := slices.ContainsFunc(list(into, field), func(o any) bool {
				has, _ := o.(map[string]any)
				return has != nil && fmt.Sprint(has[key]) == fmt.Sprint(e[key]) // either may be of any type
			})
			if !same {
				into[field] = append(list(into, field), e)
				c.note("moved: %s %v of the launcher to the pods", field, e[key])
			}
		}
	}
	join("env", app, from, "name")
	join("volumeMounts", app, from, "mountPath")
	join("volumes", pod, spec, "name")
	if dir := from["workingDir"]; dir != nil && app["workingDir"] == nil {
		app["workingDir"] = dir
		c.note("moved: workingDir %v of the launcher to the pods", dir)
	}
	for _, field := range []string{"initContainers", "envFrom"} {
		of := spec
		if field == "envFrom" {
			of = from
		}
		has, into := list(of, field), pod
		if field == "envFrom" {
			into = app
		}
		if len(has) > 0 && !reflect.DeepEqual(into[field], of[field]) {
			c.note("dropped: %s of the launcher: add them to the template if the pods need what they give", field)
		}
	}
	c.differs(spec, pod, "containers", "volumes", "initContainers", "restartPolicy", "hostNetwork")
	c.differs(from, app, "name", "command", "args", "env", "envFrom", "volumeMounts", "workingDir", "resources")
}

// differs adds notes for fields in which the launcher differs from the pods, which keep
// theirs.
func (c *conversion) differs(from, into map[string]any, except ...string) {
	for _, field := range slices.Sorted(maps.Keys(from)) {
		if !slices.Contains(except, field) && from[field] != nil && !reflect.DeepEqual(from[field], into[field]) {
			c.note("dropped: %s of the launcher: the pods have the worker's; add it to the template if the program needs it", field)
		}
	}
}

// devices moves RDMA devices from the application's resources to the job's devices: the
// sidecars get them.
func (c *conversion) devices(app map[string]any) {
	counts := map[string]int64{}
	var order []string
	for _, kind := range []string{"limits", "requests"} {
		resources := tree(app, "resources", kind)
		var named []string
		for name := range resources {
			if strings.HasPrefix(name, "rdma/") {
				named = append(named, name)
			}
		}
		slices.Sort(named)
		for _, name := range named {
			if counts[name] == 0 {
				order = append(order, name)
			}
			if q, err := resource.ParseQuantity(fmt.Sprint(resources[name])); err == nil { // kubectl writes it as text
				counts[name] = q.Value()
			}
			counts[name] = max(counts[name], 1)
			delete(resources, name)
		}
	}
	var devices []any
	for _, name := range order {
		devices = append(devices, map[string]any{"resource": name, "count": counts[name]})
		c.note("moved: resource %s to devices: the sidecar has the card, and the program needs none", name)
	}
	if len(devices) > 0 {
		c.spec["devices"] = devices
	}
}

// privileges removes what RDMA requires of a container, because the sidecar has the device.
func (c *conversion) privileges(pod, app map[string]any) {
	if pod["hostNetwork"] == true {
		delete(pod, "hostNetwork")
		c.note("dropped: hostNetwork: the sidecar has the network")
	}
	security := tree(app, "securityContext")
	if security["privileged"] == true {
		delete(security, "privileged")
		c.note("dropped: privileged: the program needs no device")
	}
	capabilities := tree(security, "capabilities")
	kept := slices.DeleteFunc(list(capabilities, "add"), func(v any) bool {
		if v != "IPC_LOCK" {
			return false
		}
		c.note("dropped: capability IPC_LOCK: the sidecar registers memory")
		return true
	})
	if capabilities["add"] != nil && len(kept) == 0 {
		delete(capabilities, "add")
	} else if len(kept) > 0 {
		capabilities["add"] = kept
	}
	if security["capabilities"] != nil && len(capabilities) == 0 {
		delete(security, "capabilities")
	}
	if app["securityContext"] != nil && len(security) == 0 {
		delete(app, "securityContext")
	}
}
