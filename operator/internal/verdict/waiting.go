package verdict

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// rejections are the reasons with which a kubelet turns away a pod that was
// scheduled to it. The Job makes such pods again.
var rejections = []string{
	"UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage",
	"TopologyAffinityError", "PodFeatureUnsupported",
}

// rejected reports whether a node turned the pod away before it ran anything.
func (o *Observation) rejected(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodFailed || o.started(p) {
		return false
	}
	return slices.Contains(rejections, p.Status.Reason) || len(p.Status.Reason) > 5 && p.Status.Reason[:5] == "OutOf"
}

// images are the reasons of containers that wait for an image.
var images = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}

// waiting says why ranks are not running yet: a condition's reason and message.
func (o *Observation) waiting() (reason, message string) {
	var rejected *corev1.Pod
	for _, p := range o.Pods {
		if o.rejected(p) {
			rejected = p
		}
	}
	for _, p := range o.Pods {
		if terminal(p) {
			continue
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && slices.Contains(images, w.Reason) {
				return v1alpha1.ReasonImageUnavailable, fmt.Sprintf("pod %s: container %s: %s: %s", p.Name, c.Name, w.Reason, w.Message)
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && rejected == nil {
				return v1alpha1.ReasonUnschedulable, fmt.Sprintf("pod %s: %s", p.Name, c.Message)
			}
		}
	}
	if rejected != nil {
		return v1alpha1.ReasonPodRejected, fmt.Sprintf("node %s rejected pod %s, which is made again: %s: %s",
			rejected.Spec.NodeName, rejected.Name, rejected.Status.Reason, rejected.Status.Message)
	}
	if n, left := o.absent(); n > 0 && left <= 0 {
		return v1alpha1.ReasonPodsMissing, fmt.Sprintf("%d of %d pods are not made; `kubectl describe job %s` says who refuses them", n, desired.Pods(&o.Job.Spec), o.Batch.Name)
	}
	return "PodsStarting", fmt.Sprintf("%d of %d ranks run", running(o), o.Job.Spec.Ranks)
}

func running(o *Observation) int32 { return *o.ranks().Running }
