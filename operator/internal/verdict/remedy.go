package verdict

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// How the API server refuses a pod for a container that it does not name: a LimitRange's
// bound and what the container has. A quota names the containers.
var (
	limitRange = regexp.MustCompile(`(minimum|maximum) (\S+) usage per Container is [^,\s]+, but (request|limit) is ([0-9.]+[A-Za-z]*)`)
	quota      = regexp.MustCompile(`(?:must specify|;) \S+ for: ([A-Za-z0-9,-]+)`)
)

// Speaks reports whether a refusal is about what containers request and are limited to.
func Speaks(refusal string) bool {
	for _, of := range []string{"per Container", "resources.requests", "must specify"} { // LimitRanges, their defaults, quotas
		if strings.Contains(refusal, of) {
			return true
		}
	}
	return false
}

// Remedy says of a refusal of pods, which are to have a spec, whose containers it is about, and
// by which fields they request less or more; the spec is nil where it is not known.
func Remedy(refusal string, spec *corev1.PodSpec) string {
	if !Speaks(refusal) {
		return ""
	}
	of, most := blamed(refusal, spec)
	var text []string
	if theirs := slices.DeleteFunc(slices.Clone(of), isOurs); len(theirs) > 0 {
		text = append(text, fmt.Sprintf("of container %s the template's resources say what it requests and is limited to", strings.Join(theirs, ", ")))
	}
	if own := slices.DeleteFunc(slices.Clone(of), func(name string) bool { return !isOurs(name) }); len(own) > 0 || len(of) == 0 {
		if len(own) == 0 {
			own = []string{names.ContainerSidecar, names.ContainerInstall}
		}
		say := fmt.Sprintf("of container %s sidecar.resources, of the MPIJob or of the chart, says it", strings.Join(own, ", "))
		if most {
			say = fmt.Sprintf("container %s has the memory that its ranks need, or what sidecar.resources says beyond that: lower memory.arena, ranksPerPod or that, or have the LimitRange raised", strings.Join(own, ", "))
		}
		text = append(text, say)
	}
	return strings.Join(text, "; ")
}

func isOurs(name string) bool {
	return name == names.ContainerSidecar || name == names.ContainerInstall
}

// blamed are the containers that a refusal is about, as far as that can be told; most says that
// they have more memory than they may.
func blamed(refusal string, spec *corev1.PodSpec) (of []string, most bool) {
	for _, m := range quota.FindAllStringSubmatch(refusal, -1) {
		for _, name := range strings.Split(m[1], ",") {
			if !slices.Contains(of, name) {
				of = append(of, name)
			}
		}
	}
	if of != nil {
		return of, false
	}
	if spec == nil {
		return nil, false
	}
	for _, m := range limitRange.FindAllStringSubmatch(refusal, -1) {
		has, err := resource.ParseQuantity(m[4])
		if err != nil {
			continue
		}
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			list := c.Resources.Requests
			if m[3] == "limit" {
				list = c.Resources.Limits
			}
			if q, ok := list[corev1.ResourceName(m[2])]; ok && q.Cmp(has) == 0 && !slices.Contains(of, c.Name) {
				of = append(of, c.Name)
				most = most || m[1] == "maximum" && m[2] == string(corev1.ResourceMemory) && isOurs(c.Name)
			}
		}
	}
	return of, most
}
