package inject

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds are the bounds of the LimitRanges of a namespace for containers; the zero
// value has none.
type Bounds struct {
	Least  corev1.ResourceList // minimum requests of a container; absent: no minimum
	Preset *resource.Quantity  // default CPU limit of a container; nil: none
}

// BoundsOf returns the strictest bounds of several LimitRanges, since the API server
// applies all of them. Of their default limits, the API server uses one.
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

// request returns the CPU request of a sidecar without a limit and without a value from
// its job, within the bounds: the API server refuses a request over the limit or under
// the minimum.
func (b *Bounds) request(cpu resource.Quantity) resource.Quantity {
	if b.Preset != nil && b.Preset.Cmp(cpu) < 0 {
		cpu = *b.Preset
	}
	return atLeast(cpu, b.Least[corev1.ResourceCPU])
}
