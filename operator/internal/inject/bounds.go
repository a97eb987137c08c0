package inject

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds are what the LimitRanges of a namespace say of each container; empty: nothing.
type Bounds struct {
	Least  corev1.ResourceList // that a container may request; absent: any
	Preset *resource.Quantity  // limit of CPU of a container that has none; nil: it stays without
}

// BoundsOf are the strictest of several LimitRanges, as the API server holds containers
// to each of them. Of their default limits it takes one.
func BoundsOf(ranges []corev1.LimitRange) (b Bounds) {
	for i := range ranges {
		for _, item := range ranges[i].Spec.Limits {
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			for name, least := range item.Min {
				if has, ok := b.Least[name]; ok && has.Cmp(least) >= 0 {
					continue
				}
				if b.Least == nil {
					b.Least = corev1.ResourceList{}
				}
				b.Least[name] = least
			}
			if preset, ok := item.Default[corev1.ResourceCPU]; ok && (b.Preset == nil || preset.Cmp(*b.Preset) < 0) {
				b.Preset = &preset
			}
		}
	}
	return b
}

// request is the CPU that a sidecar without a limit and without a wish of its job's asks
// for, within the bounds: a request over its limit is refused, and so is one under the
// least.
func (b *Bounds) request(cpu resource.Quantity) resource.Quantity {
	if b.Preset != nil && b.Preset.Cmp(cpu) < 0 {
		cpu = *b.Preset
	}
	return atLeast(cpu, b.Least[corev1.ResourceCPU])
}
