package grant

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// podContainer is the pod and the container of a process, according to its cgroup.
type podContainer struct {
	podUID, container string
}

// The names of cgroups that kubelet and runtime make, with the cgroupfs driver
// (kubepods/burstable/pod<uid>/<id>) and with systemd's (kubepods.slice/
// kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/
// cri-containerd-<id>.scope; a kubelet with a cgroup root puts that in front of
// each name). A UID is one of RFC 9562, with _ for - under systemd, or 32 digits
// for a static pod.
var (
	podsCgroup      = regexp.MustCompile(`^(?:(?:[A-Za-z0-9_.]+-)*kubepods(?:-besteffort|-burstable)?(?:\.slice)?|besteffort|burstable)$`)
	podCgroup       = regexp.MustCompile(`^(?:(?:[A-Za-z0-9_.]+-)*kubepods(?:-besteffort|-burstable)?-)?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?$`)
	containerCgroup = regexp.MustCompile(`^(?:cri-containerd-|crio-|docker-)?([0-9a-f]{64})(?:\.scope)?$`)
)

var errNoPod = errors.New("the process is in no pod")

// parseCgroup parses /proc/PID/cgroup (cgroups(7)). A name is trusted only where no
// other program than the kubelet and the runtime can have chosen it: from root, the
// kubelet's cgroup root, down to the container. A user of the node with the right to
// make cgroups, as in every systemd session, can give them any name, and so can root in
// a container below the container's cgroup.
//
// Contradicting lines are an error. Lines of a hierarchy that the kubelet does not use
// are ignored.
func parseCgroup(text, root string) (podContainer, error) {
	var found podContainer
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			return podContainer{}, fmt.Errorf("%q is not a line of /proc/PID/cgroup", line)
		}
		p, ok := placeIn(fields[2], root)
		switch {
		case !ok:
		case found == podContainer{}:
			found = p
		case found != p:
			return podContainer{}, errors.New("the process is in several pods at once")
		}
	}
	if found == (podContainer{}) {
		return podContainer{}, errNoPod
	}
	return found, nil
}

// placeIn finds the pod and the container directly below it.
func placeIn(where, root string) (podContainer, bool) {
	names, ok := below(where, root)
	if !ok {
		return podContainer{}, false
	}
	for len(names) > 0 && podsCgroup.MatchString(names[0]) {
		names = names[1:]
	}
	if len(names) < 2 {
		return podContainer{}, false
	}
	pod, container := podCgroup.FindStringSubmatch(names[0]), containerCgroup.FindStringSubmatch(names[1])
	if pod == nil || container == nil {
		return podContainer{}, false
	}
	return podContainer{podUID: strings.ReplaceAll(pod[1], "_", "-"), container: container[1]}, true
}

// below returns the names of a path below root. An agent in its own cgroup namespace
// sees other cgroups as /../../NAME, relative to the nearest cgroup above both. For
// another pod this is the kubelet's cgroup; for a process outside of pods it is further
// up.
func below(where, root string) ([]string, bool) {
	if strings.HasPrefix(where, "/../") {
		names := strings.Split(where[1:], "/")
		for len(names) > 0 && names[0] == ".." {
			names = names[1:]
		}
		return names, true
	}
	rest, ok := strings.CutPrefix(where, strings.TrimSuffix(path.Clean("/"+root), "/")+"/")
	return strings.Split(rest, "/"), ok
}
