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

// rejections are the reasons with which a kubelet turns away a pod that was
// scheduled to it. The Job makes such pods again.
var rejections = []string{
	"UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage",
	"TopologyAffinityError", "PodFeatureUnsupported",
}

// rejectionLimit is how many pods of one number may be turned away before the
// job has failed. The Job controller waits longer from one to the next.
const rejectionLimit = 20

// rejectedTooOften is the last of a number's pods when too many were turned away.
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

// lastRejected is the youngest pod that a node turned away.
func (o *Observation) lastRejected() (last *corev1.Pod) {
	for _, p := range o.Pods {
		if o.rejected(p) {
			last = p
		}
	}
	return last
}

// turnedAway is the failure of a job whose pods nodes do not take.
func (o *Observation) turnedAway(p *corev1.Pod) *v1alpha1.Failure {
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

// rejected reports whether a node turned the pod away before it ran anything.
func (o *Observation) rejected(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodFailed || o.started(p) {
		return false
	}
	return slices.Contains(rejections, p.Status.Reason) || len(p.Status.Reason) > 5 && p.Status.Reason[:5] == "OutOf"
}

// images are the reasons of containers that wait for an image.
var images = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}

// obstacles are the reasons of containers that wait for something else that
// does not come by itself.
var obstacles = []string{
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
	"PreCreateHookError", "PreStartHookError", "PostStartHookError",
}

// held says what a container waits for.
func held(p *corev1.Pod, c *corev1.ContainerStatus) string {
	text := fmt.Sprintf("pod %s: container %s: %s: %s", p.Name, c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
	if t := c.LastTerminationState.Terminated; t != nil {
		text += fmt.Sprintf(" (it ended with exit code %d: %s %s)", t.ExitCode, t.Reason, t.Message)
	}
	return text
}

// waiting says why ranks are not running yet: a condition's reason and message.
func (o *Observation) waiting() (reason, message string) {
	rejected := o.lastRejected()
	var grouped string // what is said of a pod that waits for others of its group
	for _, p := range o.Pods {
		if Terminal(p) {
			continue
		}
		if reason, message := heldUp(p); reason != "" {
			return reason, message
		}
		c := unscheduled(p)
		switch {
		case c == nil || rejected != nil:
		case c.Reason == corev1.PodReasonSchedulingGated:
			return v1alpha1.ReasonSchedulingGated, fmt.Sprintf("pod %s: %s: whoever set its schedulingGates has to remove them", p.Name, c.Message)
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

// demand says what of the memory that a pod finds on no node is its sidecar's: the job says so
// by other fields than those of its container.
func demand(p *corev1.Pod, message string) string {
	of := limitOf(p.Spec.InitContainers, names.ContainerSidecar)
	if of == "" || !strings.Contains(message, "Insufficient memory") {
		return ""
	}
	return "; the sidecar of each pod asks for a memory" + of + ", which memory.arena and ranksPerPod make less"
}

// looping warns of a native sidecar of the user's that ends again and again beside ranks that
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

// loopsAfter is how often a native sidecar has to be started again before it is told of.
const loopsAfter = 2

// heldUp is what a container of a pod waits for that does not come by itself; no
// reason: none does.
func heldUp(p *corev1.Pod) (reason, message string) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && slices.Contains(images, w.Reason) {
			return v1alpha1.ReasonImageUnavailable, held(p, &c)
		} else if w != nil && slices.Contains(obstacles, w.Reason) {
			return v1alpha1.ReasonContainerWaiting, held(p, &c)
		}
	}
	return "", ""
}

// reasonSchedulable is what Volcano's scheduler says of a pod that has room, and
// no node because others of its group have none.
const reasonSchedulable = "Schedulable"

// unscheduled is what a scheduler has said of a pod without a node; nil: nothing.
func unscheduled(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

func running(o *Observation) int32 { return *o.ranks().Running }
