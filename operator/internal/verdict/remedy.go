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

// How the API server refuses a pod because of a container that it does not name: the
// bound of a LimitRange, and the container's value. A quota names the containers.
var (
	limitRange = regexp.MustCompile(`(minimum|maximum) (\S+) usage per Container is [^,\s]+, but (request|limit) is ([0-9.]+[A-Za-z]*)`)
	quota      = regexp.MustCompile(`(?:must specify|;) \S+ for: ([A-Za-z0-9,-]+)`)
)

// Speaks reports whether a refusal is about the requests and limits of containers.
func Speaks(refusal string) bool {
	for _, of := range []string{"per Container", "resources.requests", "must specify"} { // texts of refusals by LimitRanges, by their defaults, and by quotas
		if strings.Contains(refusal, of) {
			return true
		}
	}
	return false
}

// Remedy returns which containers a refusal of pods is about, and which fields set
// their requests and limits. spec is the spec of the refused pods; nil if not known.
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

// blamed returns the containers that a refusal is about, as far as this can be
// determined. most reports whether they have more memory than the maximum.
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
