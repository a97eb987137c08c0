package verdict

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// rejections are the reasons with which a kubelet rejects a pod that was scheduled to
// its node. The Job makes such pods again.
var rejections = []string{
	"UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage",
	"TopologyAffinityError", "PodFeatureUnsupported",
}

// rejectionLimit is how many pods of one number may be rejected before the job fails.
// The Job controller waits longer after each rejection.
const rejectionLimit = 20

// rejectedTooOften returns a pod of a number of which more than rejectionLimit pods
// were rejected; nil if there is none.
func (o *Observation) rejectedTooOften() *corev1.Pod {
	times := map[int32]int{}
	for _, p := range o.Pods {
		if i := o.index(p); o.rejected(p) {
			if times[i]++; times[i] > rejectionLimit {
				return p
			}
		}
	}
	return nil
}

// lastRejected returns the youngest pod that a node rejected.
func (o *Observation) lastRejected() (last *corev1.Pod) {
	for _, p := range o.Pods {
		if o.rejected(p) {
			last = p
		}
	}
	return last
}

// rejectedFailure returns the failure of a job whose pods are rejected by nodes.
func (o *Observation) rejectedFailure(p *corev1.Pod) *v1alpha1.Failure {
	f := &v1alpha1.Failure{Reason: v1alpha1.ReasonPodRejected, Message: rejection(p), Pod: p.Name, Node: p.Spec.NodeName}
	if i := o.index(p); i >= 0 {
		rank, _ := desired.Ranks(&o.Job.Spec, i)
		f.Rank = &rank
	}
	return f
}

func rejection(p *corev1.Pod) string {
	return fmt.Sprintf("node %s rejected pod %s, which is made again: %s: %s", p.Spec.NodeName, p.Name, p.Status.Reason, p.Status.Message)
}

// rejected reports whether a node rejected the pod before any container started.
func (o *Observation) rejected(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodFailed || o.started(p) {
		return false
	}
	return slices.Contains(rejections, p.Status.Reason) || len(p.Status.Reason) > 5 && p.Status.Reason[:5] == "OutOf"
}

// images are the reasons of containers that wait for an image.
var images = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}

// obstacles are the reasons of containers that wait for another condition that does not
// resolve without an action by a user.
var obstacles = []string{
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
	"PreCreateHookError", "PreStartHookError", "PostStartHookError",
}

// held describes what a container waits for.
func held(p *corev1.Pod, c *corev1.ContainerStatus) string {
	text := fmt.Sprintf("pod %s: container %s: %s: %s", p.Name, c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
	if t := c.LastTerminationState.Terminated; t != nil {
		text += fmt.Sprintf(" (it ended with exit code %d: %s %s)", t.ExitCode, t.Reason, t.Message)
	}
	return text
}

// waiting returns why ranks are not running yet, as a condition's reason and message.
func (o *Observation) waiting() (reason, message string) {
	rejected := o.lastRejected()
	var grouped string // message about a pod that waits for others of its group
	for _, p := range o.Pods {
		if Terminal(p) {
			continue
		}
		if reason, message := waitingOn(p); reason != "" {
			return reason, message
		}
		c := unscheduled(p)
		switch {
		case c == nil || rejected != nil:
		case c.Reason == corev1.PodReasonSchedulingGated:
			return v1alpha1.ReasonSchedulingGated, fmt.Sprintf("pod %s: %s: the controller or user that set its schedulingGates has to remove them", p.Name, c.Message)
		case c.Reason != reasonSchedulable:
			return v1alpha1.ReasonUnschedulable, fmt.Sprintf("pod %s: %s", p.Name, c.Message) + demand(p, c.Message)
		case grouped == "":
			grouped = fmt.Sprintf("pod %s waits for the others of its group: %s", p.Name, c.Message)
		}
	}
	if grouped != "" {
		return v1alpha1.ReasonUnschedulable, grouped
	}
	if rejected != nil {
		return v1alpha1.ReasonPodRejected, rejection(rejected)
	}
	if n, left := o.absent(); n > 0 && left <= 0 {
		text := fmt.Sprintf("%d of %d pods are not made", n, desired.Pods(&o.Job.Spec))
		if o.Told.Refusal != "" {
			return v1alpha1.ReasonPodsMissing, text + ": " + o.refusal()
		}
		return v1alpha1.ReasonPodsMissing, fmt.Sprintf("%s; `kubectl describe job %s` says who refuses them", text, o.Batch.Name)
	}
	return reasonStarting, fmt.Sprintf("%d of %d ranks run", running(o), o.Job.Spec.Ranks) + o.waitsFor() + o.lacking() + o.unqueued() + o.unruly()
}

// demand describes which part of the memory that no node has is the sidecar's, because
// other fields than those of the container set it.
func demand(p *corev1.Pod, message string) string {
	of := limitOf(p.Spec.InitContainers, names.ContainerSidecar)
	if of == "" || !strings.Contains(message, "Insufficient memory") {
		return ""
	}
	return "; the sidecar of each pod asks for a memory" + of + ", which memory.arena and ranksPerPod make less"
}

// looping warns of a native sidecar of the user that ends again and again while ranks
// run.
func (o *Observation) looping() string {
	for _, p := range o.Pods {
		for i := range p.Status.InitContainerStatuses {
			c := &p.Status.InitContainerStatuses[i]
			if t := c.LastTerminationState.Terminated; t != nil && c.RestartCount >= loopsAfter && c.Name != names.ContainerSidecar && !Terminal(p) {
				return fmt.Sprintf("; container %s of pod %s ends and is started again and again, with exit code %d: `%s --previous`", c.Name, p.Name, t.ExitCode, logsOf(p, c.Name))
			}
		}
	}
	return ""
}

// loopsAfter is how often a native sidecar has to be restarted before the warning.
const loopsAfter = 2

// waitingOn returns the obstacle that a container of a pod waits for; the reason is
// empty if there is none.
func waitingOn(p *corev1.Pod) (reason, message string) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && slices.Contains(images, w.Reason) {
			return v1alpha1.ReasonImageUnavailable, held(p, &c)
		} else if w != nil && slices.Contains(obstacles, w.Reason) {
			return v1alpha1.ReasonContainerWaiting, held(p, &c)
		}
	}
	return "", ""
}

// reasonSchedulable is the reason that Volcano's scheduler gives to a pod that would
// fit, but gets no node because others of its group do not.
const reasonSchedulable = "Schedulable"

// unscheduled returns the condition with which a scheduler explains why a pod has no
// node; nil if there is none.
func unscheduled(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

func running(o *Observation) int32 { return *o.ranks().Running }
