// Package verdict determines the state of an MPIJob and the next action from its pods,
// its Job and the reports of its sidecars. It owns the rules for failures, restarts,
// deadlines, suspected deadlocks and obstacles, and the texts and bounds of the status.
// It is pure: the controller collects an Observation, calls Next, and executes the
// Plan.
package verdict

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// Observation is the observed state of one attempt of a job.
type Observation struct {
	Job        *v1alpha1.MPIJob
	Batch      *batchv1.Job  // nil if there is none
	Pods       []*corev1.Pod // pods of the attempt
	Before     []*corev1.Pod // pods of an earlier MPIJob of this name that are in the attempt's way (InTheWay)
	Transports []string      // transports that a sidecar reported; nil if not known
	Waits      *Waits        // what the ranks wait for; nil if they were not asked
	Told       Told          // what events say about a job that does not run yet
	Said       Said          // reports of the sidecars of pods that other containers keep running; nil if none
	Hook       Hook          // what an event says about the pod of the first failure
	NoWebhook  bool          // the webhook is off: pods of other controllers get no sidecars
	NoProfile  bool          // the profile that the job names does not exist
	NoQueue    bool          // the job names a queue, and the cluster has no queue controller
	// Lost is the node of Plan.Reads if that node is not Ready, so that the end of its
	// pods is not reported; empty if it is Ready or not known.
	Lost string
	// Noticed is when a sign of a failure (Sign) was first seen, by the clock of Now.
	// Waits do not depend on the clocks of nodes, which differ. Zero means now.
	Noticed time.Time
	// Missing is since when the pod with the number Absent has been seen to be missing,
	// by the same clock. Zero means now.
	Missing time.Time
	Now     time.Time
}

// AttemptOf returns the number of a job's present attempt: how often it has been
// started again.
func AttemptOf(j *v1alpha1.MPIJob) int32 { return restarts(j) + drains(j) }

// restarts returns how often a job was started again after a failure. restartLimit
// bounds it.
func restarts(j *v1alpha1.MPIJob) int32 { return max(counted(j.Status.Restarts), 0) }

// drains returns how often a job was started again because its pods were taken away.
func drains(j *v1alpha1.MPIJob) int32 { return max(counted(j.Status.Drains), 0) }

func counted(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// Made reports whether the attempt's Job has made a pod, and not another controller
// that uses its labels. batch is nil if the Job is gone.
func Made(p *corev1.Pod, name string, batch *batchv1.Job) bool {
	c := metav1.GetControllerOf(p)
	return c != nil && c.Kind == "Job" && c.Name == name && (batch == nil || c.UID == batch.UID)
}

// Of reports whether a pod belongs to a job's present attempt. batch is the attempt's
// Job, if it exists. An MPIJob that is created again must not be judged by the pods of
// the earlier one, which may be ending or have failed: if its status names no Job and
// there is none, it has no pods.
func Of(p *corev1.Pod, job *v1alpha1.MPIJob, batch *batchv1.Job) bool {
	if desired.NumberOf(p.Labels) != AttemptOf(job) {
		return false
	}
	if external(job) {
		return !Earlier(p, job)
	}
	name := desired.AttemptName(job.Name, AttemptOf(job))
	return (batch != nil || job.Status.JobName == name) && Made(p, name, batch)
}

// arrange sorts the pods by creation, so that the same pods give the same result, and
// removes pods from before a suspension, whose end is not a failure.
func (o *Observation) arrange() {
	o.Pods = slices.SortedFunc(slices.Values(o.Pods), func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if o.Batch == nil || external(o.Job) {
		return
	}
	start := o.batchStart()
	o.Pods = slices.DeleteFunc(o.Pods, func(p *corev1.Pod) bool {
		return o.batchHeld() || start == nil || p.CreationTimestamp.Before(start)
	})
}

// batchStart returns when the batch Job began to make pods; nil if it has not. A
// suspended Job keeps the time of its first start (before Kubernetes 1.36) until its
// controller has seen that it is resumed, and then sets a new time.
func (o *Observation) batchStart() *metav1.Time {
	if o.batchCondition(batchv1.JobSuspended) != nil {
		return nil
	}
	return o.Batch.Status.StartTime
}

// batchCondition returns a True condition of the batch Job; nil if there is none.
func (o *Observation) batchCondition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	if o.Batch == nil {
		return nil
	}
	for i := range o.Batch.Status.Conditions {
		if c := &o.Batch.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// application returns the status of a pod's application; nil before it has one.
func (o *Observation) application(p *corev1.Pod) *corev1.ContainerStatus {
	return statusOf(p.Status.ContainerStatuses, o.ApplicationName(p))
}

// ApplicationName returns the name of the application's container in a pod. It can
// differ from the template's in a pod of another controller; the webhook has recorded
// it there.
func (o *Observation) ApplicationName(p *corev1.Pod) string {
	if name := p.Annotations[names.AnnotationContainer]; name != "" && external(o.Job) {
		return name
	}
	return o.Job.Spec.Template.Spec.Containers[0].Name
}

func sidecar(p *corev1.Pod) *corev1.ContainerStatus {
	return statusOf(p.Status.InitContainerStatuses, names.ContainerSidecar)
}

func statusOf(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// ended returns how a container has ended, in its present or its last run; nil if it
// has not.
func ended(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case c == nil:
		return nil
	case c.State.Terminated != nil:
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

// started reports whether a pod's application container has been started. Its launcher
// waits for the sidecar, so the ranks may not run yet (joined).
func (o *Observation) started(p *corev1.Pod) bool {
	c := o.application(p)
	return c != nil && (c.State.Running != nil || ended(c) != nil)
}

// joined reports whether a pod's ranks have been started: its application container has
// started, and its sidecar is ready. Once all ranks of an attempt have been started, a
// running sidecar counts as ready, because a restarted kubelet does not know whether it
// is.
func (o *Observation) joined(p *corev1.Pod) bool {
	if !o.started(p) {
		return false
	}
	return ended(o.application(p)) != nil || !Awaits(p) || meta.IsStatusConditionTrue(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
}

// Awaits reports whether a pod's sidecar runs but is not ready: it waits for something
// outside of the pod.
func Awaits(p *corev1.Pod) bool {
	c := sidecar(p)
	return c != nil && c.State.Running != nil && !c.Ready
}

// Terminal reports whether all containers of a pod have ended.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// index returns a pod's number in the job, or -1.
func (o *Observation) index(p *corev1.Pod) int32 { return Number(p, o.Job) }

// Number returns a pod's number in a job, or -1.
func Number(p *corev1.Pod, job *v1alpha1.MPIJob) int32 {
	n := numberOf(p.Labels[batchv1.JobCompletionIndexAnnotation])
	if n >= desired.Pods(&job.Spec) {
		return -1
	}
	return n
}

// Traffic returns what a pod's sidecar has reported about its transports.
func Traffic(p *corev1.Pod) []podlife.Traffic {
	t := ended(sidecar(p))
	if t == nil {
		return nil
	}
	m := message(t.Message, podlife.KindSidecar)
	if m == nil {
		return nil
	}
	return m.Traffic
}
