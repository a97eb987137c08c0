package grant

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// place is where a process runs, as its cgroup tells.
type place struct {
	podUID, container string
}

// The names of cgroups that kubelet and runtime make, with the cgroupfs driver
// (pod<uid>/<id>) and with systemd's (kubepods-pod<uid>.slice/
// cri-containerd-<id>.scope). A UID is one of RFC 9562, with _ for - under
// systemd, or 32 digits for a static pod.
var (
	podCgroup       = regexp.MustCompile(`^(?:kubepods(?:-besteffort|-burstable)?-)?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?$`)
	containerCgroup = regexp.MustCompile(`^(?:cri-containerd-|crio-|docker-)?([0-9a-f]{64})(?:\.scope)?$`)
)

var errNoPod = errors.New("the process is in no pod")

// parseCgroup reads /proc/PID/cgroup (cgroups(7)). On each line the first pod
// and the container right below it count: what lies deeper was made inside the
// container, where anyone can choose names. Lines that contradict each other
// are an error; lines of the root or of a hierarchy that the kubelet does not
// use say nothing.
func parseCgroup(text string) (place, error) {
	var found place
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			return place{}, fmt.Errorf("%q is not a line of /proc/PID/cgroup", line)
		}
		p, ok := placeIn(fields[2])
		switch {
		case !ok:
		case found == place{}:
			found = p
		case found != p:
			return place{}, errors.New("the process is in several pods at once")
		}
	}
	if found == (place{}) {
		return place{}, errNoPod
	}
	return found, nil
}

func placeIn(path string) (place, bool) {
	names := strings.Split(path, "/")
	for i, name := range names {
		pod := podCgroup.FindStringSubmatch(name)
		if pod == nil {
			continue
		}
		if i+1 == len(names) {
			return place{}, false
		}
		container := containerCgroup.FindStringSubmatch(names[i+1])
		if container == nil {
			return place{}, false
		}
		return place{podUID: strings.ReplaceAll(pod[1], "_", "-"), container: container[1]}, true
	}
	return place{}, false
}
